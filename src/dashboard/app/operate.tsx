import { useSignal } from '@preact/signals';
import { type Action, ActionDialog } from './action.tsx';
import { canChange, type ListedEvent, post } from './api.ts';
import { toFilter } from './events.tsx';
import { messageOf } from './failure.ts';
import { Findings } from './findings.tsx';
import { number, plural } from './format.ts';
import { overview } from './live.ts';
import { Empty, ErrorText, Problem, Section, State, Table, Time } from './parts.tsx';

type Ask = (action: Action) => void;

export function OperatePage() {
  const action = useSignal<Action | undefined>(undefined);
  const ask: Ask = (chosen) => {
    action.value = chosen;
  };
  return (
    <>
      <h1>Operate</h1>
      {!canChange() && <p class="remark">You can read, but not change anything.</p>}
      <Switches ask={ask} />
      {canChange() && (
        <div class="columns">
          <Again ask={ask} />
          <Prune ask={ask} />
        </div>
      )}
      <Schedules />
      <Maintenance />
      <Findings />
      {action.value && (
        <ActionDialog
          action={action.value}
          onClose={() => {
            action.value = undefined;
          }}
        />
      )}
    </>
  );
}

interface Switched {
  name: string;
  state: string;
  pausedAt?: string;
  reason?: string;
}

function Switches({ ask }: { ask: Ask }) {
  const data = overview.value;
  if (data === undefined) return <Empty>Reading the outbox …</Empty>;
  const rows: [kind: 'destinations' | 'queues', each: Switched, events: number][] = [
    ...data.destinations.map((each) => ['destinations', each, each.waiting] as ['destinations', Switched, number]),
    ...data.queues.map((each) => ['queues', each, each.ready + each.waiting] as ['queues', Switched, number]),
  ];
  const actionOf = (kind: 'destinations' | 'queues', { name, state }: Switched): Action => {
    const noun = kind === 'queues' ? 'queue' : 'destination';
    const isPaused = state === 'paused';
    const pauseText =
      kind === 'queues'
        ? 'Relays claim nothing more from it. What they have claimed ends normally.'
        : 'Relays send nothing more to it. Its events wait, and no attempt is counted.';
    return {
      title: `${isPaused ? 'Resume' : 'Pause'} the ${noun} ${name}`,
      verb: isPaused ? 'Resume' : 'Pause',
      path: `${kind}/${isPaused ? 'resume' : 'pause'}`,
      body: { name },
      explanation: isPaused ? 'Relays deliver the events that waited, oldest first.' : pauseText,
    };
  };
  return (
    <Section title="Destinations and queues">
      {rows.length === 0 ? (
        <Empty>No relay has registered a destination or a queue.</Empty>
      ) : (
        <Table label="Destinations and queues" columns={['Name', 'State', 'Waiting', '']}>
          {rows.map(([kind, each, events]) => (
            <tr key={`${kind} ${each.name}`}>
              <td>
                <span class="dim">{kind === 'queues' ? 'queue' : 'destination'}</span> {each.name}
              </td>
              <td>
                <State of={each.state} /> {each.state === 'paused' && each.pausedAt && <Time at={each.pausedAt} />}{' '}
                <span class="dim">{each.reason}</span>
              </td>
              <td class="number">{number(events)}</td>
              <td class="actions">
                {canChange() && (
                  <button type="button" class="small" onClick={() => ask(actionOf(kind, each))}>
                    {each.state === 'paused' ? 'Resume' : 'Pause'}
                  </button>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}

/** Replay of delivered events and cancel of undelivered ones, by filter. */
function Again({ ask }: { ask: Ask }) {
  const problem = useSignal<string | undefined>(undefined);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const { submitter, currentTarget } = event;
    const isReplay = (submitter as HTMLButtonElement | null)?.value === 'replay';
    try {
      const target = toFilter(new FormData(currentTarget as HTMLFormElement));
      if (Object.keys(target).length === 0) throw new Error('Say which events: a type, an aggregate or a time.');
      problem.value = undefined;
      ask(isReplay ? replayOf(target) : cancelOf(target));
    } catch (error) {
      problem.value = messageOf(error);
    }
  };
  return (
    <Section title="Replay or cancel by filter">
      <form class="filter" onSubmit={submit}>
        <label>
          Type
          <input name="type" type="search" autoComplete="off" />
        </label>
        <label>
          Aggregate type
          <input name="aggregateType" type="search" autoComplete="off" />
        </label>
        <label>
          Aggregate id
          <input name="aggregateId" type="search" autoComplete="off" />
        </label>
        <label>
          Emitted from
          <input name="from" type="datetime-local" />
        </label>
        <label>
          Emitted until
          <input name="to" type="datetime-local" />
        </label>
        <Problem text={problem.value} />
        <span class="actions">
          <button type="submit" value="replay">
            Replay delivered
          </button>
          <button type="submit" value="cancel" class="danger">
            Cancel undelivered
          </button>
        </span>
      </form>
    </Section>
  );
}

const previewMax = 100;

/** How many events match, counted up to a page: a count of millions would read them all. */
async function countMatches(filter: object, statuses: string[]): Promise<string> {
  let count = 0;
  let isMore = false;
  for (const status of statuses) {
    const page = await post<{ events: ListedEvent[]; next?: string }>('search', {
      ...filter,
      status,
      limit: previewMax,
    });
    count += page.events.length;
    isMore ||= page.next !== undefined;
  }
  return isMore
    ? `At least ${plural(count, 'event')} match.`
    : `${plural(count, 'event')} match${count === 1 ? 'es' : ''}.`;
}

function replayOf(target: object): Action {
  return {
    title: 'Deliver events again',
    verb: 'Replay',
    path: 'events/replay',
    body: { target },
    explanation: 'All targets get these delivered events again, with the same ids, in order per aggregate.',
    preview: () => countMatches(target, ['SENT']),
  };
}

function cancelOf(target: object): Action {
  return {
    title: 'Cancel undelivered events',
    verb: 'Cancel events',
    danger: true,
    path: 'events/cancel',
    body: { target },
    explanation: 'These events are never delivered. Each becomes a discarded dead letter, which can be retried by id.',
    preview: () => countMatches(target, ['PENDING', 'PROCESSING']),
  };
}

const day = 86_400_000;

function Prune({ ask }: { ask: Ask }) {
  const days = useSignal('30');
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const olderThanMs = Number(days.value) * day;
    ask({
      title: `Delete delivered events older than ${plural(Number(days.value), 'day')}`,
      verb: 'Delete',
      danger: true,
      path: 'prune',
      body: { olderThanMs },
      explanation: 'They leave the log and cannot be replayed. Undelivered events and dead letters stay.',
      preview: async () => {
        const { events, kept } = await post<{ events: number; kept: Record<string, number> }>('prune', {
          olderThanMs,
          dryRun: true,
        });
        const keptCount = Object.values(kept).reduce((sum, count) => sum + count, 0);
        return `${plural(events, 'event')} will be deleted. ${number(keptCount)} of that age stay.`;
      },
    });
  };
  return (
    <Section title="Prune">
      <p class="dim">Deletes delivered events. Relays do this on their own, according to their maintenance settings.</p>
      <form class="filter" onSubmit={submit}>
        <label>
          Older than (days)
          <input
            type="number"
            min="0"
            max="36500"
            required
            value={days.value}
            onInput={(event) => {
              days.value = event.currentTarget.value;
            }}
          />
        </label>
        <span class="actions">
          <button type="submit" class="danger">
            Delete
          </button>
        </span>
      </form>
    </Section>
  );
}

function Schedules() {
  const schedules = overview.value?.schedules ?? [];
  if (schedules.length === 0) return null;
  return (
    <Section title="Schedules">
      <Table label="Schedules" columns={['Name', 'State', 'Cron', 'Time zone', 'Last', 'Next']}>
        {schedules.map((each) => (
          <tr key={each.name}>
            <td>{each.name}</td>
            <td>
              <State of={each.state} />
            </td>
            <td class="mono">{each.cron}</td>
            <td>{each.timeZone}</td>
            <td>{each.lastTickAt ? <Time at={each.lastTickAt} /> : '–'}</td>
            <td>{each.nextTickAt ? <Time at={each.nextTickAt} /> : '–'}</td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

function Maintenance() {
  const maintenance = overview.value?.maintenance;
  if (maintenance === undefined || maintenance.tasks.length === 0) return null;
  return (
    <Section
      title="Maintenance"
      aside={<span class="dim">by {maintenance.leader ? `relay ${maintenance.leader.name}` : 'no relay'}</span>}
    >
      <Table label="Maintenance" columns={['Task', 'Ran', 'Changed', 'Result']}>
        {maintenance.tasks.map((each) => (
          <tr key={each.task}>
            <td>{each.task}</td>
            <td>
              <Time at={each.ranAt} />
            </td>
            <td class="number">{number(each.changed)}</td>
            <td>{each.error === undefined ? (each.note ?? 'done') : <ErrorText text={each.error} />}</td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}
