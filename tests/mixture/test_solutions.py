"""Answers out of worked solutions: own sentences in the forms of TabMWP, which hold more numbers than the answer."""

from scripts.mixture.solutions import read_solution, sentences

NUMBERS = [
    ("How many plums did Ada pick?", "Add the plums.\n4 + 3 = 7\nAda picked 7 plums.", "7"),
    ("How much does Ada need to buy a kite?", "$2.25 + $1.10 = $3.35\nAda needs $3.35.", "$3.35"),
    ("What was the rate of change between May and June?", "The rate of change was - 7 letters per month.", "-7"),
    ("What was the rate of change?", "The rate of change was \u2212 $3 per month.", "-$3"),
    ("What is the range?", "9 - 2 = 7\nThe range is 9 - 2.", None),  # a difference is no sign
    # Numbers of the question come again in the answer.
    ("How many crates hold exactly 12 melons?", "You counted 3.\n3 crates hold exactly12 melons.", "3"),
    ("Each crate has 2 melons. How many melons are in 6 crates?", "There are 12 melons in 6 crates.", "12"),
    ("How many crates hold exactly 3 melons?", "3 crates hold exactly 3 melons.", "3"),
    ("How much did the club grow between 2014 and 2015?", "Between 2014 and 2015 it grew by 9 members.", "9"),
    ("How many crates hold at least 3 melons?", "Those are 3 crates.", None),  # which of the two it is, nobody knows
    ("How many crates are there?", "Ada has 4 crates and 2 boxes.", None),
    ("What is the probability of 2 tails? Simplify any fractions.", r"It is \frac{3}{11}.", r"\frac{3}{11}"),
    ("What is the slope?", r"The slope is -6\frac{1}{2}.", r"-6\frac{1}{2}"),
    ('Ada asked: "Which kite flies?" What is the probability that it is red?', "The probability is 1/4.", "1/4"),
    ("How many melons did Mrs. Reed sell?", "Mrs. Reed sold 8 melons.", "8"),
    ("How many eggs are there?", "It takes 3 dozen eggs.", None),
    ("How long is it?", r"It is 5\sqrt{3} cm.", None),
]
OTHERS = [
    # A number beside what is asked for is not the answer.
    ("On which day did Ada sell the most kites?", "Sunday is best. She sold 79.", None),
    ("Who sold the most kites?", "The greatest number is 79.", None),
    ("Whose kite is higher?", "It is 30 feet up.", None),
    ("Where is the market?", "It is on street 5.", None),
    ("When does the tour end?", "The tour ends at 4:30 P. M.", None),
    ("What time is it?", "It is 3.", None),
    ("How long does she wait?", "The elapsed time is 15 minutes.", None),  # the unit is a part of the answer
    ("In 2002, which town grew most?", "Mill grew most in 2002.", None),
    ("Does Ada have enough to buy a kite?", "Since Ada has $23.00, she has just enough money.", None),
    ("Is this true or false? Mars has 2 moons.", "Mars has 2 moons.", None),
    # The solution states what is asked for.
    ("Which day is best?", "Now find the corresponding day. Sunday corresponds to 79.", "Sunday"),
    ("Who lives closest?", "Find the corresponding name. Mr. Reed corresponds to 14.", "Mr. Reed"),
    ("Is the function linear or nonlinear?", "It has one rate.\nThe function is linear.", "linear"),
    ("Is the function linear or nonlinear?", "The function is nonlinear.", "nonlinear"),
    ("At a price of $405, is there a shortage or a surplus?", "So, there is a surplus.", "surplus"),
    ("Which town got less, Great Mill or Reed?", "$3 is less than $5. In 1990, Great Mill got less.", "Great Mill"),
    ("Which charges more, the Mill ferry or the Reed ferry?", "The Mill ferry charges more.", None),
    ("Is the kite red or blue?", "The kite is not red.", None),
    ("Does Ada have enough to buy a kite?", "$4 is less than $5. Ada does have enough money.", "Yes"),
    ("Does Ada have enough to buy a kite?", "$4 is more than $3. Ada does not have enough money.", "No"),
    ("Is this relation a function?", "The x-value 7 comes twice, so the relation is not a function.", "No"),
    ("Is this relation a function?", "Each x-value comes once, so the relation is a function.", "Yes"),
    ("Is this relation a function?", "Nobody can tell.", None),
]


def test_the_answer_is_what_the_question_asks_for_or_none():
    assert [case for case in NUMBERS + OTHERS if read_solution(*case[:2]) != case[2]] == []


def test_titles_end_no_sentence():
    parts = ["Ask Mr. Reed.", 'He said "Stop."', "and went.", "Now?"]
    assert sentences('Ask Mr. Reed. He said "Stop." and went.\nNow?') == parts
    assert sentences("") == [""]
