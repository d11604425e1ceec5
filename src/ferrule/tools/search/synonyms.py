"""List words that mean the same in a tool search: "send a mail" finds `email_dispatch`.

Each line is a group; a word may be in several. Written for the names and descriptions of tools and
APIs, in English.
"""

from __future__ import annotations

from ferrule.tools.word_stems import stem

_GROUPS = """
get fetch retrieve obtain load read pull lookup
find search look locate discover query seek
list show display enumerate view browse print
create add new make insert generate build register
delete remove erase drop clear cancel destroy trash forget
update edit change modify set adjust alter patch rename
send email mail message notify dispatch post
calculate compute determine estimate evaluate solve work
convert exchange translate transform
currency money dollar euro yen pound usd eur gbp cad jpy
weather forecast temperature rain snow sunny climate humidity wind
book reserve reservation
schedule calendar appointment meeting event agenda
buy purchase order shop checkout
price cost fee quote rate
flight plane airline airport
hotel accommodation lodging room
restaurant dining eat food cuisine meal
movie film cinema
music song track album playlist play
photo picture image screenshot
file document
folder directory dir path
run execute launch start invoke
stop end kill terminate halt abort
code source program script
bug issue ticket defect
user person people customer individual member account
car vehicle automobile
distance route direction
location place where address city
time date when hour day
sort order arrange rank
sum total add plus
multiply product multiplication times
average mean
divide quotient division
gcd divisor
lcm multiple
stock share market ticker equity
news article headline
todo task reminder
upload attach
download export save
copy duplicate clone fork
move transfer
compare difference diff
count number quantity many
summarize summary
question answer ask
job position vacancy employment
doctor physician medical clinic
invoice bill payment pay
lawsuit case court legal
match game
winner won win
recipe cook dish ingredient
random pick
terminal shell command console process
database sql table
web url http website page internet online
password credential login
repository repo git
log logs history trace
install setup deploy release publish
test check verify validate
write save store append
remember memory store
size big large
undo revert reset restore rollback
switch checkout
navigate go visit open browse
type enter input fill
"""


def _table() -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for line in _GROUPS.strip().splitlines():
        group = {stem(word) for word in line.split()}
        for word in group:
            found.setdefault(word, set()).update(group - {word})
    return {word: tuple(sorted(others)) for word, others in found.items()}


SYNONYMS = _table()
"""Stems and their synonyms, sorted."""
