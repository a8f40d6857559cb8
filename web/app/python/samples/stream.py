import typedecide.browser
from typedecide import Noul, Score

engine = await typedecide.browser.connect()
questions = {
    "urgent": Noul("Must this be handled today?"),
    "mood": Score("How angry is the customer?", ["calm", "annoyed", "angry"]),
    "legal": Noul("Does the customer threaten with a lawyer?"),
}
text = "This is the third mail. If I do not hear from you today, my lawyer will write the next one."
async for id, one in engine.stream(text, questions):
    print(id, one.answer.choice, f"{one.answer.confidence:.2f}")
