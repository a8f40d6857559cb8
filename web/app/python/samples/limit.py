import asyncio

import typedecide.browser
from typedecide import Noul, TypedecideError

engine = await typedecide.browser.connect()
question = {"refund": Noul("Does the customer want money back?")}
for text in ["Send me my money back.", "Where is my parcel?", "word " * 100_000]:
    try:
        async with asyncio.timeout(30):
            done = await engine.decide(text, question)
        print(f"{text[:24]!r}: {done.answers['refund'].answer.value:.2f}")
    except TimeoutError:
        print(f"{text[:24]!r}: not within 30 seconds")
    except TypedecideError as error:
        print(f"{text[:24]!r}: {error.code} {error.data}")
