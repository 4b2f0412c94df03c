"""Why the scheduler inside an attached engine (L2) does not rule, with the remedy. Pure."""

from app.engines.adoption import EngineProblem
from workers.engine import control_page, page_folder

_PLUGIN = "docs/attach.md says how to install and switch on the plug-in."
_PROBLEMS = {
    page_folder.NO_FOLDER: (
        "The folder of control pages does not exist.",
        f"Share one folder between engine and worker, and set SLACKWATER_PAGE_DIR in both. {_PLUGIN}",
    ),
    page_folder.NO_PAGE: (
        "The engine has no control page in the worker's folder.",
        f"Start it with SLACKWATER_HARVEST=on and SLACKWATER_PAGE_DIR, the worker's folder. {_PLUGIN}",
    ),
    page_folder.UNREADABLE: (
        "The worker may not use the engine's control page.",
        "Run both as one user, or let the folder belong to a group of both that may write to it (fsGroup, chmod g+ws).",
    ),
    page_folder.OPEN_TO_OTHERS: (
        "Any user may use the engine's control page.",
        "Remove the page's permissions for others (chmod o-rwx), or restart the engine.",
    ),
    page_folder.SEVERAL: (
        "The folder has the control pages of several engines.",
        "Give each engine and its worker a folder of their own: SLACKWATER_PAGE_DIR.",
    ),
    page_folder.UNSUPPORTED: (
        "The plug-in was not tested with the engine's version of vLLM, or the engine cannot use it; its log names the reason.",
        "Use a version of vLLM that docs/attach.md names, or unset SLACKWATER_PAGE_DIR.",
    ),
    page_folder.TRIPPED: (
        "The plug-in in the engine has met a fault; the engine's log has it.",
        "Restart the engine when it suits its callers, and report the fault.",
    ),
    page_folder.IGNORED: (
        "The engine's scheduler does not follow the worker's commands; its log names the reason (HARVEST_WORKER).",
        "Run engine and worker with the same clock (one machine, no time namespace), and in versions that fit.",
    ),
    control_page.UNKNOWN: (
        "A file in the folder of control pages is none.",
        "Remove it, or restart the engine.",
    ),
    control_page.TOO_OLD: (
        "The plug-in of the engine is too old for this worker.",
        "Install slackwater-vllm of the worker's version in the engine's environment.",
    ),
    control_page.TOO_NEW: (
        "The plug-in of the engine is too new for this worker.",
        "Update Slackwater to the version of slackwater-vllm in the engine's environment.",
    ),
}


def problem_of(code: str) -> EngineProblem:
    """The problem with this code: one of `workers.engine.page_folder` or `control_page`. Batch work continues, with L1."""
    message, remedy = _PROBLEMS[code]
    return EngineProblem(code, f"{message} Requests are protected from outside only (L1).", remedy)


CODES = frozenset(_PROBLEMS)
