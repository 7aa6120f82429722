"""The judge itself: `python3 -m unittest discover tests/e2e`."""

import unittest

import judge


def cell(**facts):
    return {"raised": None, "hung": False, "text": "", "word": None, "calls": [], **facts}


def guarded(scenario, direct, guard):
    return judge.guarded(scenario, {"direct": cell(**direct), "guard": cell(**guard)}).wrong


def run(scenario, via, **facts):
    facts = {"written": [], **facts}
    return judge.judge_run(cell(scenario=scenario, via=via, **facts), ["whole"]).wrong


class Clients(unittest.TestCase):
    def test_a_finished_turn_must_stay_as_it_is(self):
        self.assertIsNone(guarded("complete", {"text": "a"}, {"text": "a"}))
        self.assertIsNotNone(guarded("complete", {"text": "a"}, {"text": "b"}))
        self.assertIsNotNone(guarded("complete", {"text": "a"}, {"raised": "E: x"}))

    def test_a_client_that_fails_directly_proves_nothing(self):
        self.assertIsNotNone(guarded("complete", {"raised": "E: x"}, {"raised": "E: x"}))

    def test_an_unfinished_turn_must_raise(self):
        self.assertIsNone(guarded("cut-after-args", {}, {"raised": "E: x"}))
        self.assertIsNotNone(guarded("cut-after-args", {}, {}))

    def test_hanging_is_no_refusal(self):
        self.assertIsNotNone(guarded("cut-after-args", {}, {"raised": "Timeout: x", "hung": True}))

    def test_observe_must_change_nothing(self):
        same = {"length": {"direct": cell(word="length"), "observe": cell(word="length")}}
        changed = {"length": {"direct": cell(word="length"), "observe": cell(word="stop")}}
        self.assertIsNone(judge.observed(same).wrong)
        self.assertIsNotNone(judge.observed(changed).wrong)

    def test_a_refused_call_is_asked_for_once(self):
        asked = cell(client="c", call="create", tag="t", raised="E: x")
        self.assertIsNone(judge.judge_retry(asked, ["t", None]).wrong)
        self.assertIsNotNone(judge.judge_retry(asked, ["t", "t", "t"]).wrong)


class Frameworks(unittest.TestCase):
    def test_a_complete_call_must_run_and_end_well(self):
        self.assertIsNone(run("tool-call", "guard", written=["whole"]))
        self.assertIsNotNone(run("tool-call", "guard"))
        self.assertIsNotNone(run("tool-call", "guard", written=["who"]))
        self.assertIsNotNone(run("tool-call", "guard", written=["whole", "whole"]))
        self.assertIsNone(run("tool-call-parallel", "guard", written=["whole", "whole"]))
        self.assertIsNotNone(run("tool-call", "guard", written=["whole"], raised="E: x"))

    def test_nothing_runs_from_an_unfinished_turn(self):
        self.assertIsNone(run("cut-after-args", "guard", raised="E: x"))
        self.assertIsNotNone(run("cut-after-args", "guard", written=["whole"], raised="E: x"))
        self.assertIsNotNone(run("cut-after-args", "guard"))

    def test_directly_everything_is_a_fact(self):
        self.assertIsNone(run("cut-after-args", "direct", written=["whole"]))


if __name__ == "__main__":
    unittest.main()
