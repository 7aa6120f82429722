"""The judge itself: `python3 -m unittest discover tests/e2e`."""

import unittest

import coding_agents
import judge
import tables


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

    def test_a_tool_without_parameters_writes_its_own_text(self):
        def wrong(written):
            cell = dict(scenario="tool-call-no-args", via="guard", raised=None, hung=False)
            return judge.judge_run(dict(cell, written=written), ["whole"]).wrong

        self.assertIsNone(wrong([judge.BARE]))
        self.assertTrue(wrong([]) and wrong(["whole"]) and wrong([judge.BARE] * 2))

    def test_a_call_that_a_framework_cannot_run_directly_may_not_run_behind_guard(self):
        def cell(via, raised):
            return dict(scenario="tool-call-no-args", via=via, raised=raised, hung=False, written=[])

        direct = cell("direct", None)
        self.assertIsNone(judge.judge_run(cell("guard", None), [], direct).wrong)
        self.assertTrue(judge.judge_run(cell("guard", "Error"), [], direct).wrong)

    def test_a_turn_that_fails_once_recovers_where_it_does_directly(self):
        def cell(via, written, raised, requests):
            facts = dict(scenario="reset,tool-call", via=via, hung=False)
            return dict(facts, written=written, raised=raised, requests=requests)

        def wrong(direct, guard, always=None):
            scenarios = {"reset": {"direct": always}} if always else {}
            return judge.judge_repeat(guard, {"direct": direct, "guard": guard}, scenarios).wrong

        recovered, failed = cell("direct", ["a"], None, 3), cell("direct", [], "Error", 1)
        again, gave_up = cell("guard", ["a"], None, 3), cell("guard", [], "Error", 1)
        self.assertIsNone(wrong(recovered, again))
        self.assertIsNone(wrong(failed, again))
        self.assertIsNone(wrong(failed, gave_up))
        self.assertTrue(wrong(recovered, gave_up))
        self.assertTrue(wrong(recovered, gave_up, always=failed))
        blind = cell("direct", [], None, 5)
        self.assertIsNone(wrong(recovered, gave_up, always=blind))
        self.assertTrue(wrong(recovered, cell("guard", [], None, 1), always=blind))
        self.assertTrue(wrong(failed, cell("guard", [], None, 1)))
        self.assertTrue(wrong(failed, cell("guard", ["a", "a"], None, 2)))
        self.assertTrue(wrong(failed, cell("guard", ["a"], None, 1)))
        endless = dict(cell("guard", [], None, 5), hung=True)
        self.assertTrue(wrong(failed, endless))
        self.assertIsNone(wrong(dict(failed, raised=None, hung=True), endless))
        self.assertIsNone(wrong(failed, dict(endless, scenario="error-late")))

    def test_directly_everything_is_a_fact(self):
        self.assertIsNone(run("cut-after-args", "direct", written=["whole"]))


def agent(scenario, ran=0, exit=1, direct=None, **facts):
    """What is wrong with a guarded run; `direct` holds what differs in the direct one."""
    wire = facts.pop("wire", "Anthropic Messages")
    via = facts.pop("via", "guard")
    facts = {"hung": False, "error": False, "said": "", "requests": 1, "retries": "lowered", **facts}
    guard = dict(facts, wire=wire, scenario=scenario, via=via, ran=ran, exit=exit)
    other = None if direct is None else {**guard, "via": "direct", **direct}
    return judge.judge_agent(guard, other)


class Agents(unittest.TestCase):
    def test_a_complete_call_runs_once_and_two_calls_twice(self):
        self.assertIsNone(agent("tool-call", ran=1, exit=0))
        self.assertIsNotNone(agent("tool-call", ran=0, exit=0))
        self.assertIsNotNone(agent("tool-call", ran=2, exit=0))
        self.assertIsNotNone(agent("tool-call", ran=1, exit=1))
        self.assertIsNone(agent("tool-call-parallel", ran=2, exit=0))
        self.assertIsNotNone(agent("tool-call-parallel", ran=1, exit=0))

    def test_nothing_runs_from_an_unfinished_turn_and_the_user_is_told(self):
        self.assertIsNone(agent("cut-after-call"))
        self.assertIsNone(agent("cut-after-call", exit=0, error=True))
        scripted = {"hung": False, "exit": 1}
        self.assertIsNotNone(agent("cut-after-call", exit=0, error=True, direct=scripted))
        self.assertIsNone(agent("cut-after-call", exit=1, direct=scripted))
        self.assertIsNotNone(agent("cut-after-call", ran=1))
        self.assertIsNotNone(agent("cut-after-call", exit=0))

    def test_directly_everything_is_a_fact_but_a_complete_call(self):
        direct = {"via": "direct"}
        self.assertIsNone(agent("cut-after-call", ran=4, exit=0, **direct))
        self.assertIsNotNone(agent("tool-call", ran=0, **direct))

    def test_still_asking_is_worse_only_where_the_direct_run_fails_loudly(self):
        waits = {"exit": None, "hung": True}
        loud = {"hung": False, "exit": 1}
        self.assertIsNotNone(agent("cut-after-call", **waits, direct=loud))
        self.assertIsNone(agent("cut-after-call", **waits, direct={"hung": False, "exit": 0, "ran": 1}))
        self.assertIsNone(agent("cut-after-call", **waits, direct={}))
        self.assertIsNone(agent("cut-after-call", **waits, retries="default", direct=loud))

    def test_an_agent_that_never_asked_proves_nothing(self):
        waits = {"exit": None, "hung": True, "requests": 0}
        self.assertIsNotNone(agent("cut-after-call", **waits, direct={}))

    def test_a_run_that_recovers_directly_recovers_behind_guard(self):
        once = "cut-in-tool-call,tool-call"
        well = {"ran": 1, "exit": 0, "requests": 2}
        self.assertIsNone(agent(once, **well, direct=well))
        self.assertIsNotNone(agent(once, direct=well))
        # One request: what ran was the unfinished call.
        self.assertIsNone(agent(once, direct={**well, "requests": 1}))
        self.assertIsNotNone(agent(once, ran=1, exit=0, direct=well))
        self.assertIsNone(agent(once, direct={"ran": 2, "exit": 0}))
        self.assertIsNotNone(agent(once, ran=2, exit=0, direct={"ran": 2, "exit": 0}))
        self.assertIsNotNone(agent(once, exit=0, direct={"ran": 0}))

    def test_a_run_that_fails_loudly_directly_fails_loudly_behind_guard(self):
        once = "length-whole-args,tool-call"
        self.assertIsNone(agent(once, direct={"ran": 1, "exit": 1}))
        self.assertIsNotNone(agent(once, ran=1, exit=0, direct={"ran": 1, "exit": 1}))

    def test_an_odd_complete_turn_is_as_directly_or_refused(self):
        odd = {"scenario": "no-marker-tool-call", "wire": "OpenAI chat"}
        self.assertIsNone(agent(**odd, ran=1, exit=0, direct={}))
        self.assertIsNone(agent(**odd, direct={"ran": 1, "exit": 0}))
        self.assertIsNotNone(agent(**odd, ran=1, direct={"ran": 1, "exit": 0}))

    def test_every_row_has_a_label(self):
        for _, wires, _, _ in coding_agents.AGENTS.values():
            for wire in wires:
                for row in judge.agent_rows(wire):
                    self.assertTrue(tables.agent_label(*row))

    def test_rows_are_those_of_the_wire(self):
        names = [scenario for scenario, _ in judge.agent_rows("OpenAI Responses")]
        self.assertNotIn("choices-cut-call", names)
        chat = [scenario for scenario, _ in judge.agent_rows("OpenAI chat")]
        self.assertEqual(chat.count("no-marker-tool-call"), 1)


if __name__ == "__main__":
    unittest.main()
