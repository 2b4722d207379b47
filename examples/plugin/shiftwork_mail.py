"""Two plug-ins for Shiftwork: a trigger that hands in the mails of a Maildir, and a decider that sorts them."""

from __future__ import annotations

import asyncio
import email
import email.policy
import os
from collections.abc import Mapping
from typing import Any

from sessions import plugin as deciders
from triggers import plugin as triggers


class MaildirSettings(triggers.Settings):
    """The keys of ``[triggers.NAME]`` beside ``kind`` and ``queues``."""

    path: triggers.RelativePath
    every: triggers.Duration = 5.0


class Maildir(triggers.Trigger[MaildirSettings]):
    """Hands in what lies in ``new/``, then moves it to ``cur/``, as mail programs do."""

    settings_model = MaildirSettings

    async def run(self, wake: triggers.Wake, hand_in: triggers.HandIn) -> None:
        """Look, hand in, sleep, until cancelled."""
        while True:
            for name in await asyncio.to_thread(os.listdir, self.settings.path / "new"):
                try:
                    await hand_in([await asyncio.to_thread(self.read, name)])
                except triggers.InputRefused as refused:
                    self.given.say(f"{name} is left out: {refused}")
                # only now: a crash before this line hands the mail in again, as the same item
                os.rename(self.settings.path / "new" / name, self.settings.path / "cur" / f"{name}:2,S")
            await asyncio.sleep(self.settings.every)

    def read(self, name: str) -> triggers.Item:
        """One mail as an item; its file name, which is unique, says which delivery this is."""
        with open(self.settings.path / "new" / name, "rb") as file:
            mail = email.message_from_binary_file(file, policy=email.policy.default)
        text = mail.get_body(("plain",))
        return triggers.Item(
            title=str(mail["subject"] or "")[:200],
            body=text.get_content() if text is not None else "",
            delivery=name,
        )


class SorterSettings(deciders.Settings):
    """The keys of ``[deciders.NAME]`` beside ``kind``: a word, and the folder of mails that have it."""

    words: dict[str, str]


class Sorter(deciders.Decider[SorterSettings]):
    """Answers with the folder, or asks a person when no folder or several would do."""

    settings_model = SorterSettings
    decided_by = "code"

    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]:
        """One decision about one mail."""
        if request["answers"]:
            said = request["answers"][-1]
            text, citations = said["option"] or said["text"], [said["flag"]]
            return {"reason": "a person said so", "decision": "answer", "text": text, "citations": citations}
        body = request["item"]["body"].lower()
        folders = sorted({folder for word, folder in self.settings.words.items() if word in body})
        if len(folders) == 1:
            return {"reason": "its words say so", "decision": "answer", "text": folders[0], "citations": []}
        choices = folders or sorted(set(self.settings.words.values()))
        question = {
            "question": f"Which folder? {request['item']['title']}",
            "kind": "direction",
            "options": [{"label": folder, "cost": "none"} for folder in choices],
            "recommendation": {"option": None, "reason": "the words do not say"},
        }
        stuck = "several folders would do" if folders else "no word is known"
        return {"reason": stuck, "decision": "flag", "stuck": stuck, "questions": [question]}
