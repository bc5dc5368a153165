import { useSignal } from '@preact/signals';
import { type Action, ActionDialog } from './action.tsx';
import { canChange, type GroupRow, get, type LetterCount, type LetterRow, post } from './api.ts';
import { messageOf } from './failure.ts';
import { number, plural } from './format.ts';
import { useLoaded } from './load.ts';
import { AggregateLink, Empty, ErrorText, EventLink, Problem, Table, Time } from './parts.tsx';

type Target = { errorGroup: string } | { ids: string[] } | { all: true };

export function DeadLettersPage() {
  const { data, problem, busy, reload } = useLoaded('groups', () => get<{ groups: GroupRow[] }>('dead-letters/groups'));
  const action = useSignal<Action | undefined>(undefined);
  const groups = data.value?.groups ?? [];
  const total = groups.reduce((sum, { count }) => sum + count, 0);
  const ask = (verb: 'retry' | 'discard', target: Target, what: string) => {
    action.value = actionOf(verb, target, what);
  };
  return (
    <>
      <div class="title">
        <h1>Dead letters</h1>
        <span class="dim">{data.value && `${plural(total, 'event')} in ${plural(groups.length, 'group')}`}</span>
        <span class="actions">
          <button type="button" onClick={reload} disabled={busy.value}>
            Refresh
          </button>
          {canChange() && groups.length > 0 && (
            <button type="button" onClick={() => ask('retry', { all: true }, 'all dead letters')}>
              Retry all
            </button>
          )}
        </span>
      </div>
      <Problem text={problem.value} />
      {data.value !== undefined && groups.length === 0 && <Empty>There are no dead letters.</Empty>}
      <ul class="groups">
        {groups.map((group) => (
          <Group key={group.group} group={group} ask={ask} />
        ))}
      </ul>
      {action.value && (
        <ActionDialog
          action={action.value}
          onClose={(changed) => {
            action.value = undefined;
            if (changed) reload();
          }}
        />
      )}
    </>
  );
}

function actionOf(verb: 'retry' | 'discard', target: Target, what: string): Action {
  const preview = async () => {
    const { count, blocking, partlyDelivered } = await post<LetterCount>('dead-letters/count', target);
    const parts = [
      `${plural(count, 'event')} will be ${verb === 'retry' ? 'retried' : 'discarded'}.`,
      blocking > 0 && `${number(blocking)} of them block their aggregate, which then continues.`,
      partlyDelivered > 0 && `${number(partlyDelivered)} of them reached some of their targets already.`,
    ];
    return parts.filter(Boolean).join(' ');
  };
  const isRetry = verb === 'retry';
  return {
    title: `${isRetry ? 'Retry' : 'Discard'} ${what}`,
    verb: isRetry ? 'Retry' : 'Discard',
    danger: !isRetry,
    path: `dead-letters/${verb}`,
    body: { target },
    explanation: isRetry
      ? 'They go back into the queue, due now, in order per aggregate. Targets that already have an event do not get it again.'
      : 'They are never delivered, and no longer block their aggregates. Their history stays.',
    preview,
  };
}

interface GroupProps {
  group: GroupRow;
  ask: (verb: 'retry' | 'discard', target: Target, what: string) => void;
}

function Group({ group, ask }: GroupProps) {
  const open = useSignal(false);
  const target = { errorGroup: group.group };
  const what = group.count === 1 ? 'this event' : `these ${number(group.count)} events`;
  return (
    <li class="panel group">
      <div class="head">
        <span class="count">{number(group.count)}</span>
        <div class="text">
          <ErrorText text={group.error} />
          <p class="dim">
            {group.type ?? 'deleted event'}, {group.reasons.join(', ')}, last <Time at={group.lastAt} />
            {group.count > 1 && (
              <>
                , first <Time at={group.firstAt} />
              </>
            )}
            {group.blocking > 0 && <span class="state bad">{plural(group.blocking, 'blocked aggregate')}</span>}
          </p>
        </div>
        <span class="actions">
          <button
            type="button"
            aria-expanded={open.value}
            onClick={() => {
              open.value = !open.value;
            }}
          >
            {open.value ? 'Hide' : 'Show'}
          </button>
          {canChange() && (
            <>
              <button type="button" class="primary" onClick={() => ask('retry', target, what)}>
                Retry
              </button>
              <button type="button" class="danger" onClick={() => ask('discard', target, what)}>
                Discard
              </button>
            </>
          )}
        </span>
      </div>
      {open.value && <Letters group={group} ask={ask} />}
    </li>
  );
}

interface LetterPage {
  deadLetters: LetterRow[];
  next?: string;
}

function Letters({ group, ask }: GroupProps) {
  const filter = { errorGroup: group.group, limit: 25 };
  const more = useSignal<LetterRow[]>([]);
  const next = useSignal<string | undefined | null>(null);
  const { data, problem } = useLoaded(`${group.group} ${group.count}`, () => post<LetterPage>('dead-letters', filter));
  const after = next.value === null ? data.value?.next : next.value;
  const load = async () => {
    try {
      const page = await post<LetterPage>('dead-letters', { ...filter, after });
      more.value = [...more.value, ...page.deadLetters];
      next.value = page.next;
    } catch (error) {
      problem.value = messageOf(error);
    }
  };
  return (
    <>
      <Problem text={problem.value} />
      <Table label="Dead letters of this group" columns={['Event', 'Type', 'Aggregate', 'Dead', 'Attempts', '']}>
        {[...(data.value?.deadLetters ?? []), ...more.value].map((letter) => (
          <tr key={letter.seq}>
            <td>
              <EventLink id={letter.id} seq={letter.seq} />
            </td>
            <td>{letter.type ?? '–'}</td>
            <td>
              <AggregateLink of={letter.aggregate} />
            </td>
            <td>
              <Time at={letter.at} />
            </td>
            <td class="number">{letter.attempts}</td>
            <td class="actions">
              {canChange() && (
                <button type="button" class="small" onClick={() => ask('retry', { ids: [letter.seq] }, 'this event')}>
                  Retry
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
      {after && (
        <button type="button" class="more" onClick={() => void load()}>
          More
        </button>
      )}
    </>
  );
}
