"""How people ask for the built-in tools: a request and the arguments that answer it.

Shown to models that were never taught to call tools, those most like the request first. They are
part of a tool's description but are kept here, so that a strong model's prompt does not grow by
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ferrule.tools.definition import Tool
from ferrule.tools.usual_arguments import accept_usual_arguments

EXAMPLES: Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]] = {
    "read_file": (
        ("View the text of poem.tex", {"path": "poem.tex"}),
        ("Show me the words of song.txt", {"path": "song.txt"}),
        ("Take a look inside garden.ini", {"path": "garden.ini"}),
        ("I want to read the recipe in food/soup.txt", {"path": "food/soup.txt"}),
        (
            "Go through lines 31 to 44 of novel.tex",
            {"path": "novel.tex", "line_start": 31, "line_end": 44},
        ),
        ("less manual", {"path": "manual"}),
        ("Please open food/menu.txt and print all of it", {"path": "food/menu.txt"}),
        (
            "Lines 12-30 of garden.py, please",
            {"path": "garden.py", "line_start": 12, "line_end": 30},
        ),
        ("I would like to see the code in pond.go", {"path": "pond.go"}),
    ),
    "read_file_tail": (
        ("Only the end of garden.log, 40 lines", {"path": "garden.log", "line_count": 40}),
        ("The newest 15 entries of weather.log", {"path": "weather.log", "line_count": 15}),
        ("The closing lines of speech.txt", {"path": "speech.txt"}),
        ("The final 12 rows of weather.log", {"path": "weather.log", "line_count": 12}),
        ("The last bit of pond.log, say 6 lines", {"path": "pond.log", "line_count": 6}),
    ),
    "write_file": (
        (
            "Compose poem.txt with the words 'roses are red'",
            {"path": "poem.txt", "content": "roses are red"},
        ),
        (
            'Generate food/fruits.csv holding "apple,pear"',
            {"path": "food/fruits.csv", "content": "apple,pear"},
        ),
        ("Start a file today.txt that reads 'sunny'", {"path": "today.txt", "content": "sunny"}),
        ("Dump 'a=b' to map.ini", {"path": "map.ini", "content": "a=b"}),
        ("Set the content of flag.txt to 'on'", {"path": "flag.txt", "content": "on"}),
        (
            "Produce notes/plan.md with this text: 'start early'",
            {"path": "notes/plan.md", "content": "start early"},
        ),
    ),
    "edit_file": (
        (
            "Exchange 'river' by 'lake' in story.txt",
            {"path": "story.txt", "old_string": "river", "new_string": "lake"},
        ),
        (
            'Correct "Jhon" to "John" in people.csv',
            {"path": "people.csv", "old_string": "Jhon", "new_string": "John"},
        ),
        (
            "Update guests.txt so that 'Tuesday' reads 'Friday'",
            {"path": "guests.txt", "old_string": "Tuesday", "new_string": "Friday"},
        ),
        (
            "In song.txt, 'moon' must be 'sun'",
            {"path": "song.txt", "old_string": "moon", "new_string": "sun"},
        ),
        (
            "Wherever paint.txt has 'red', make it 'blue'",
            {"path": "paint.txt", "old_string": "red", "new_string": "blue"},
        ),
    ),
    "replace_lines": (
        (
            "Rewrite lines 21 to 24 of song.txt as 'la la la'",
            {"path": "song.txt", "line_start": 21, "line_end": 24, "new_content": "la la la"},
        ),
        (
            'From line 2 up to line 5 in menu.txt put "closed" instead',
            {"path": "menu.txt", "line_start": 2, "line_end": 5, "new_content": "closed"},
        ),
        (
            "Swap out lines 14-16 of paint.txt for 'gone'",
            {"path": "paint.txt", "line_start": 14, "line_end": 16, "new_content": "gone"},
        ),
        (
            "Let lines 3 and 4 of menu.txt be 'soup'",
            {"path": "menu.txt", "line_start": 3, "line_end": 4, "new_content": "soup"},
        ),
    ),
    "insert_lines": (
        (
            "Squeeze 'Dear all,' in above line 6 of letter.txt",
            {"path": "letter.txt", "line_start": 6, "new_content": "Dear all,"},
        ),
        (
            'Place "chapter two" ahead of line 40 in novel.tex',
            {"path": "novel.tex", "line_start": 40, "new_content": "chapter two"},
        ),
        (
            "letter.txt needs 'Regards' as a new line 12",
            {"path": "letter.txt", "line_start": 12, "new_content": "Regards"},
        ),
        (
            "The text 'P.S.' goes in front of line 18 in letter.txt",
            {"path": "letter.txt", "line_start": 18, "new_content": "P.S."},
        ),
    ),
    "create_dir": (
        ("New folder holiday/photos", {"path": "holiday/photos"}),
        ("Have a directory ready called songs", {"path": "songs"}),
        ("An empty directory for the albums: music/albums", {"path": "music/albums"}),
        ("Please add a subfolder drafts", {"path": "drafts"}),
    ),
    "move_path": (
        ("Give poem.tex the name ode.tex", {"source": "poem.tex", "target": "ode.tex"}),
        (
            "soup.txt should live at recipes/soup.txt",
            {"source": "soup.txt", "target": "recipes/soup.txt"},
        ),
        (
            "Transfer songs/a.mp3 over to music/a.mp3",
            {"source": "songs/a.mp3", "target": "music/a.mp3"},
        ),
        ("mv box.txt crate.txt", {"source": "box.txt", "target": "crate.txt"}),
        (
            "The folder attic is to be called loft from now on",
            {"source": "attic", "target": "loft"},
        ),
    ),
    "delete_path": (
        ("Wipe out garden.bak", {"path": "garden.bak"}),
        ("Take away the folder holiday", {"path": "holiday"}),
        ("Drop diary.txt for good", {"path": "diary.txt"}),
        ("rm songs.tmp", {"path": "songs.tmp"}),
        ("The file junk.dat can be deleted", {"path": "junk.dat"}),
        ("Have the attic folder removed", {"path": "attic"}),
    ),
    "list_files": (
        ("Names and sizes of what lies in holiday", {"path": "holiday"}),
        ("Look into the folder songs", {"path": "songs"}),
        ("Which documents do we have here?", {}),
        ("All the pictures, please", {}),
        ("Show me the contents of the attic folder", {"path": "attic"}),
        ("dir recipes", {"path": "recipes"}),
        (
            "The photos directory by size, hidden ones too",
            {"path": "photos", "show_hidden": True, "sort_by": "size"},
        ),
        ("The entries of the cellar directory", {"path": "cellar"}),
        ("What do we have under music?", {"path": "music"}),
    ),
    "file_tree": (
        ("Every path below holiday, with all subfolders", {"path": "holiday"}),
        ("Map out the whole workspace", {}),
        ("The complete folder hierarchy", {}),
        ("A full recursive listing of the project", {}),
        ("All nested folders and files under attic", {"path": "attic"}),
    ),
    "file_outline": (
        ("Sum up the definitions in orchard.py", {"path": "orchard.py"}),
        ("Names of the methods in lib/garden.rb", {"path": "lib/garden.rb"}),
        ("Headings of guide.md", {"path": "guide.md"}),
        ("The structure of garden.rb", {"path": "garden.rb"}),
        ("A table of contents of pond.go with functions and types", {"path": "pond.go"}),
    ),
    "search_files": (
        ("Who mentions 'marzipan'?", {"pattern": "marzipan"}),
        ("Locate water_plants in the sources", {"pattern": "water_plants"}),
        ("Where does water_plants get called?", {"pattern": "water_plants"}),
        ("Any line with 'sugar' below recipes?", {"pattern": "sugar", "path": "recipes"}),
        ("rg marzipan", {"pattern": "marzipan"}),
        ("Check all *.txt for 'moon'", {"pattern": "moon", "file_filter": "*.txt"}),
        ("Is the word honey to be found anywhere?", {"pattern": "honey"}),
        ("grep -r honey", {"pattern": "honey"}),
        ("Find the word saffron in my recipes", {"pattern": "saffron"}),
    ),
    "run_command": (
        ("Call ./bake.sh --hot", {"command": "./bake.sh --hot"}),
        ("Perform `python grow.py 3`", {"command": "python grow.py 3"}),
        ("Do a tox -e lint", {"command": "tox -e lint"}),
        ("Compile it with gcc pond.c", {"command": "gcc pond.c"}),
        ("Start ./water --now in the shell", {"command": "./water --now"}),
        ("Let our linter go over it: ruff check", {"command": "ruff check"}),
    ),
    "git_command": (
        ("History of the repository", {"subcommand": "log"}),
        ("What did I modify since the last commit?", {"subcommand": "diff"}),
        ("State of the working tree in git", {"subcommand": "status"}),
        ("Who wrote the lines of poem.tex?", {"subcommand": "blame", "args": ["poem.tex"]}),
        ("git show HEAD~2", {"subcommand": "show", "args": ["HEAD~2"]}),
        ("The commits so far", {"subcommand": "log"}),
        ("What does git say about modified files?", {"subcommand": "status"}),
    ),
    "add_task": (
        ("Don't let me forget to water the plants", {"content": "water the plants"}),
        ("New item for my to-do list: bake a cake", {"content": "bake a cake"}),
        ("Another thing to do is paint the fence", {"content": "paint the fence"}),
        ("To do: sweep the yard", {"content": "sweep the yard"}),
        ("Make a to-do entry 'mow the lawn'", {"content": "mow the lawn"}),
    ),
    "list_tasks": (
        ("Go over my to-do list", {}),
        ("Which items are open?", {}),
        ("What else is on my plate?", {}),
        ("My to-dos, please", {}),
        ("Give me all to-dos and how far they are", {}),
    ),
    "update_task": (
        ("Tick off task_9", {"task_id": "task_9", "status": "completed"}),
        ("I have just begun task_11", {"task_id": "task_11", "status": "in_progress"}),
        ("task_7 has to wait, it is not started", {"task_id": "task_7", "status": "pending"}),
        ("The status of task_6 is now completed", {"task_id": "task_6", "status": "completed"}),
    ),
    "get_current_time": (
        ("How late is it now?", {}),
        ("Which day of the week is it?", {}),
        ("The hour in Asia/Tokyo", {"timezone": "Asia/Tokyo"}),
        ("Give me the clock time", {}),
        ("The date in ISO form", {}),
    ),
    "get_working_directory": (
        ("In what folder do we work?", {}),
        ("Full path of this workspace", {}),
        ("pwd", {}),
        ("Where on the disk is this project?", {}),
    ),
}
"""By tool name. Nothing of `evals/` may be repeated here, not even reworded."""


def examples_for(name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the examples of a tool as `Tool.examples`: `{"request": ..., "arguments": {...}}`."""
    return tuple(
        {"request": request, "arguments": arguments}
        for request, arguments in EXAMPLES.get(name, ())
    )


def with_examples(*tools: Tool) -> tuple[Tool, ...]:
    """Return the tools, each with its examples, and with arguments under usual names."""
    return tuple(
        replace(accept_usual_arguments(tool), examples=examples_for(tool.name)) for tool in tools
    )
