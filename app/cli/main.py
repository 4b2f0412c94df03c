"""`slackwater`: the command line. Every group of commands is a module, which is mounted here."""

import typer

from app import processes
from app.cli import version
from app.cli.late_commands import LateCommand, LateGroup
from app.cli.options import warn_of_variables
from app.user_errors import guarded

USE, RUN, ADMINISTER = "Use", "Run", "Administer"  # what commands are listed under


class CommandLine(LateGroup):
    """Every command and group, in the order of `slackwater --help`. A summary is the first paragraph of the command's help."""

    late = (
        LateCommand(USE, "submit", "app.cli.submit:submit", "Submit a file as a batch and print the batch's id."),
        LateCommand(
            USE,
            "results",
            "app.cli.results:results",
            "Print or save the results of a batch. They are available while it runs.",
        ),
        LateCommand(
            USE,
            "batch",
            "app.cli.batch:app",
            "List and show batches; pause, resume, cancel and retry them; delete their contents.",
        ),
        LateCommand(
            USE,
            "status",
            "app.cli.status:status",
            "Show the state of the installation: parts, engines, queue, problems. The exit code is 1 if it is down.",
        ),
        LateCommand(
            USE,
            "why",
            "app.cli.why:why",
            "Explain why a batch or a pipeline waits, since when, and what its engines decided last.",
        ),
        LateCommand(
            USE,
            "top",
            "app.cli.top:top",
            "Show engines, queue, batches and the protection of synchronous callers, live. Ctrl-C ends it.",
        ),
        LateCommand(
            USE,
            "pipeline",
            "app.cli.pipeline:app",
            "Submit, check, list and watch pipelines; read their results; change their state.",
        ),
        LateCommand(
            USE,
            "spend",
            "app.cli.spend:app",
            "Report what requests used and cost; explain a change; compare the ledger with the queue.",
        ),
        LateCommand(
            USE,
            "compare",
            "app.cli.compare:compare",
            "Compare two variants: latency, failures, cost, cached share, retries, growth of sessions, with 95 % intervals.",
        ),
        LateCommand(
            USE,
            "shadow",
            "app.cli.shadow:shadow",
            "Send a file to Slackwater and to another batch API, and show answers, time and cost of both side by side.",
        ),
        LateCommand(
            USE,
            "subscription",
            "app.cli.subscription:app",
            "Create and manage webhooks and queues for the events of batches; see what was delivered.",
        ),
        LateCommand(
            USE,
            "events",
            "app.cli.events:events",
            "Show the events that wait in queues. `slackwater subscription queue` creates a queue.",
        ),
        LateCommand(
            USE,
            "listen",
            "app.cli.listen:listen",
            "Receive, verify and show webhooks on this machine, for development.",
        ),
        LateCommand(
            USE,
            "login",
            "app.cli.login:login",
            "Check an API key and store it for the other commands. SLACKWATER_URL and SLACKWATER_API_KEY take precedence.",
        ),
        LateCommand(
            USE,
            "logout",
            "app.cli.login:logout",
            "Delete the stored API key from this machine. The key stays valid; `slackwater key revoke` revokes it.",
        ),
        LateCommand(
            RUN,
            "up",
            "app.cli.installation:up",
            "Run everything on this machine: database, API, engine, GPU worker, notifier, steward, maintenance, console.",
        ),
        LateCommand(
            RUN,
            "down",
            "app.cli.installation:down",
            "Stop the `slackwater up` of this data directory, as Ctrl-C does, and wait until it has stopped.",
        ),
        LateCommand(
            RUN,
            "demo",
            "app.cli.installation:demo",
            "Run a batch of real prompts through the whole system, show answers and the webhook, and stop.",
        ),
        LateCommand(
            RUN,
            "doctor",
            "app.cli.installation:doctor",
            "Check this machine and its settings, and say how to fix each problem.",
        ),
        LateCommand(
            RUN, "logs", "app.cli.logs:logs", "Show the logs of the parts that `slackwater up` runs on this machine."
        ),
        LateCommand(
            RUN,
            "incidents",
            "app.cli.incidents:incidents",
            "Show what died, closed, stopped, started and changed, in order, "
            "with the ids of engines, batches, deliveries and traces.",
        ),
        LateCommand(RUN, "engine", "app.cli.engine:app", "Run vLLM alone; list, drain and undrain engines."),
        LateCommand(RUN, "model", "app.cli.model:app", "List the models of this installation; prepare their weights."),
        LateCommand(
            RUN,
            "console",
            "app.cli.console:app",
            "Run the web console; make one-time links to it; list and end its sessions.",
        ),
        LateCommand(
            RUN, "settings", "app.cli.settings_list:show", "List every setting with its current value and its meaning."
        ),
        LateCommand(
            RUN,
            "capacity",
            "app.cli.capacity:capacity",
            "Estimate what a fleet at full load needs of one PostgreSQL, and what runs out first.",
        ),
        LateCommand(RUN, "api", "app.cli.parts:api", "Run the HTTP API."),
        LateCommand(
            RUN,
            "gpu-worker",
            "app.cli.parts:gpu_worker",
            "Run a worker: it starts vLLM, or attaches to SLACKWATER_ENGINE_URL or to those of SLACKWATER_ENGINES.",
        ),
        LateCommand(
            RUN,
            "steward",
            "app.cli.parts:steward",
            "Run the steward, which maintains the queue. Several may run; one of them leads.",
        ),
        LateCommand(RUN, "notifier", "app.cli.parts:notifier", "Run the worker that delivers webhooks."),
        LateCommand(
            RUN,
            "maintenance",
            "app.cli.parts:maintenance",
            "Run the worker that does what may take long: retention, checks, the audit log.",
        ),
        LateCommand(
            ADMINISTER,
            "account",
            "app.cli.account:app",
            "Create, list, show and delete accounts; set the limits of one account.",
        ),
        LateCommand(ADMINISTER, "key", "app.cli.key:app", "Create, rotate, list and revoke API keys."),
        LateCommand(
            ADMINISTER,
            "operator",
            "app.cli.operator:app",
            "Create, list and revoke tokens of operators, for the admin API.",
        ),
        LateCommand(ADMINISTER, "budget", "app.cli.budget:app", "Set, list and remove budgets."),
        LateCommand(
            ADMINISTER, "policy", "app.cli.policy:app", "Apply, compare, try and roll back the rules on requests."
        ),
        LateCommand(ADMINISTER, "audit", "app.cli.audit:app", "Read, check and export the audit log."),
        LateCommand(
            ADMINISTER,
            "migrate",
            "app.cli.installation:migrate",
            "Migrate the database to the newest schema and create today's partitions.",
        ),
        LateCommand(
            ADMINISTER,
            "restored",
            "app.cli.restored:restored",
            "Prepare a database that was restored to an earlier moment, before parts run on it again.",
        ),
        LateCommand(
            ADMINISTER,
            "redact",
            "app.cli.redact:redact",
            "Find stored values that the policy in force would have redacted, and redact them.",
        ),
        LateCommand(
            ADMINISTER,
            "shred",
            "app.cli.shred:shred",
            "Show on raw files what the deletion of a batch's contents removes. `slackwater batch rm` deletes those of a batch.",
        ),
        LateCommand(
            ADMINISTER,
            "secret-key",
            "app.cli.secret_key:app",
            "Change the secret key: see what depends on an earlier one.",
        ),
    )


app = typer.Typer(
    cls=CommandLine,
    help="Durable batch inference in the slack of your GPUs. Settings are environment variables SLACKWATER_…; "
    "`slackwater settings` lists them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.callback()(version.options)


def main() -> None:
    """Entry point. An error that the user can fix is printed with its remedy, if there is one, and the exit code is 1."""
    processes.keep_private()
    warn_of_variables()
    guarded(app)


if __name__ == "__main__":
    main()
