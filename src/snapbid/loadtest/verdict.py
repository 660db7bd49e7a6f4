"""Decides whether a run passed, or why it failed."""

from collections.abc import Sequence

from snapbid.loadtest.reports import DIFFERENT, NOT_DONE
from snapbid.loadtest.result import (
    EventFigures,
    NoticeFigures,
    PhaseResult,
    Reconciliation,
    Verdict,
)


def judge(
    phases: Sequence[PhaseResult],
    capacity: float | None,
    notices: NoticeFigures,
    events: EventFigures | None,
    reconciliation: Reconciliation,
    ended_early: str,
) -> Verdict:
    """Judge a run; the verdict names the first reason for its failure.

    A capacity search may miss objectives and still pass. `ended_early`: why the run was aborted; ""
    if it was not.
    """
    measured = [phase for phase in phases if phase.measured]
    if ended_early or not measured:
        return Verdict(False, ended_early or "interrupted")
    if reconciliation.status == DIFFERENT:
        return Verdict(False, f"the report differs: {reconciliation.detail}")
    if reconciliation.status == NOT_DONE and reconciliation.detail != "--no-reconcile":
        return Verdict(False, reconciliation.detail)
    if missed := _missed(measured, capacity):
        return Verdict(False, missed)
    failed = sum(notices.failed.values())
    if failed:
        return Verdict(False, f"{failed} notices failed: {notices.example}")
    if events is not None and events.failed:
        return Verdict(False, f"{events.failed} event batches failed: {events.example}")
    return Verdict(True, "")


def _missed(measured: Sequence[PhaseResult], capacity: float | None) -> str:
    """Return which objective was missed, or that a search found no capacity; "" if neither."""
    if capacity is not None:
        last = measured[-1]
        return "" if capacity > 0 else f"no rate met the objectives; {last.rate:g}/s: {last.missed}"
    for phase in measured:
        if not phase.held:
            why = f"; {phase.client.why}" if phase.client.why else ""
            return f"objective missed in {phase.name} at {phase.rate:g}/s: {phase.missed}{why}"
    return ""
