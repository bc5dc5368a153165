import { signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { type BlockedRow, get, type ListedEvent, post } from './api.ts';
import { messageOf } from './failure.ts';
import { number, plural } from './format.ts';
import { overview } from './live.ts';
import { useLoaded } from './load.ts';
import { AggregateLink, Empty, ErrorText, EventLink, Problem, Section, State, Table, Time } from './parts.tsx';
import { go, href, route } from './route.ts';

interface Page {
  events: ListedEvent[];
  next?: string;
}

const statuses = { '': 'any', PENDING: 'waiting', PROCESSING: 'in flight', SENT: 'delivered', FAILED: 'dead' };

/** The fields of the form, as the search filter of the API. */
export function toFilter(form: FormData): Record<string, unknown> {
  const text = (name: string) => String(form.get(name) ?? '').trim();
  const time = (name: string) => (text(name) === '' ? undefined : new Date(text(name)).toISOString());
  const aggregate = [text('aggregateType'), text('aggregateId')].filter((part) => part !== '');
  const filter = {
    type: text('type') || undefined,
    status: text('status') || undefined,
    queue: text('queue') || undefined,
    aggregate: text('aggregateType') === '' ? undefined : aggregate,
    from: time('from'),
    to: time('to'),
    error: text('error') || undefined,
    header: text('headerName') === '' ? undefined : [text('headerName'), text('headerValue')],
  };
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined));
}

const idPattern = /^(\d{1,19}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$/i;

/** Whether the field for an id should get the focus, as soon as the page is there. */
export const searchWanted = signal(false);

export function EventsPage() {
  const idField = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (searchWanted.value) idField.current?.focus();
    searchWanted.value = false;
  }, [searchWanted.value]);
  const [status = ''] = route.value.rest;
  const rows = useSignal<ListedEvent[]>([]);
  const next = useSignal<string | undefined>(undefined);
  const filter = useSignal<Record<string, unknown>>({});
  const problem = useSignal<string | undefined>(undefined);
  const busy = useSignal(false);

  const load = async (chosen: Record<string, unknown>, after?: string) => {
    busy.value = true;
    try {
      const page = await post<Page>('search', { ...chosen, limit: 50, ...(after && { after }) });
      filter.value = chosen;
      rows.value = after === undefined ? page.events : [...rows.value, ...page.events];
      next.value = page.next;
      problem.value = undefined;
    } catch (error) {
      problem.value = messageOf(error);
    }
    busy.value = false;
  };
  useEffect(() => {
    void load(status === '' ? {} : { status });
  }, [status, route.value.outbox]);

  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const id = String(form.get('id') ?? '').trim();
    if (id === '') void load(toFilter(form));
    else if (idPattern.test(id)) go('event', id);
    else problem.value = 'An event id is a UUID, and a seq is a number.';
  };

  return (
    <>
      <h1>Events</h1>
      <search>
        <form class="filter" onSubmit={submit} key={status}>
          <label class="wide">
            Event id or seq
            <input name="id" type="search" autoComplete="off" spellcheck={false} ref={idField} />
          </label>
          <label>
            Type
            <input name="type" type="search" autoComplete="off" placeholder="order.created" />
          </label>
          <label>
            Status
            <select name="status" defaultValue={status}>
              {Object.entries(statuses).map(([value, word]) => (
                <option key={value} value={value} selected={value === status}>
                  {word}
                </option>
              ))}
            </select>
          </label>
          <label>
            Aggregate type
            <input name="aggregateType" type="search" autoComplete="off" placeholder="order" />
          </label>
          <label>
            Aggregate id
            <input name="aggregateId" type="search" autoComplete="off" placeholder="42" />
          </label>
          <details class="wide">
            <summary>Time, header, error text, queue</summary>
            <div class="filter">
              <label>
                Emitted from
                <input name="from" type="datetime-local" />
              </label>
              <label>
                Emitted until
                <input name="to" type="datetime-local" />
              </label>
              <label>
                Header
                <input name="headerName" type="search" autoComplete="off" placeholder="tenant" />
              </label>
              <label>
                Value
                <input name="headerValue" type="search" autoComplete="off" />
              </label>
              <label>
                Error text contains
                <input name="error" type="search" autoComplete="off" />
              </label>
              <label>
                Queue
                <input name="queue" type="search" autoComplete="off" />
              </label>
            </div>
          </details>
          <button type="submit" class="primary" disabled={busy.value}>
            Search
          </button>
        </form>
      </search>
      <Problem text={problem.value} />
      <BlockedAggregates />
      {rows.value.length === 0 ? (
        <Empty>{busy.value ? 'Searching …' : next.value ? 'No match so far.' : 'No event matches.'}</Empty>
      ) : (
        <EventTable events={rows.value} />
      )}
      {next.value !== undefined && (
        <button type="button" class="more" disabled={busy.value} onClick={() => void load(filter.value, next.value)}>
          {busy.value ? 'Searching …' : 'More'}
        </button>
      )}
    </>
  );
}

export function EventTable({ events }: { events: readonly ListedEvent[] }) {
  return (
    <Table label="Events" columns={['Event', 'Type', 'Aggregate', 'Status', 'Emitted', 'Attempts', 'Last error']}>
      {events.map((event) => (
        <tr key={event.seq}>
          <td>
            <EventLink id={event.id} seq={event.seq} />
          </td>
          <td>{event.type}</td>
          <td>
            <AggregateLink of={event.aggregate} />
          </td>
          <td>
            <State of={event.status} />
          </td>
          <td>
            <Time at={event.createdAt} />
          </td>
          <td class="number">{event.attempts}</td>
          <td>{event.lastError && <ErrorText text={event.lastError} />}</td>
        </tr>
      ))}
    </Table>
  );
}

function BlockedAggregates() {
  const { data } = useLoaded('blocked', () => get<{ blocked: BlockedRow[] }>('blocked'));
  const blocked = data.value?.blocked ?? [];
  if (blocked.length === 0) return null;
  return (
    <Section title={`${plural(blocked.length, 'blocked aggregate')}`}>
      <ul class="chips">
        {blocked.slice(0, 20).map((each) => (
          <li key={each.seq}>
            <a
              href={
                each.aggregate ? href('aggregate', each.aggregate.type, each.aggregate.id) : href('event', each.seq)
              }
            >
              {each.aggregate ? `${each.aggregate.type} ${each.aggregate.id}` : each.key}
            </a>{' '}
            <span class="dim">{each.waiting} waiting</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** All events of one aggregate, and the dead letter that blocks it, if one does. */
export function AggregatePage() {
  const [type = '', id = ''] = route.value.rest;
  const order = useSignal<'oldest' | 'newest'>('newest');
  const { data, problem } = useLoaded(`${type} ${id} ${order.value}`, () =>
    post<Page>('search', { aggregate: [type, id], order: order.value, limit: 200 }),
  );
  const events = data.value?.events ?? [];
  const blocked = overview.value?.blocked.find(({ aggregate }) => aggregate?.type === type && aggregate.id === id);
  const turn = () => {
    order.value = order.value === 'newest' ? 'oldest' : 'newest';
  };
  return (
    <>
      <h1>
        {type} {id}
      </h1>
      <Problem text={problem.value} />
      {blocked && (
        <p class="remark">
          The dead letter <EventLink id={blocked.id} seq={blocked.seq} /> blocks this aggregate. Its later events wait (
          {number(blocked.waiting)} now) until you retry or discard it.
        </p>
      )}
      <Section
        title={`Events, ${order.value} first`}
        aside={
          <button type="button" class="small" onClick={turn}>
            Show {order.value === 'newest' ? 'oldest' : 'newest'} first
          </button>
        }
      >
        <p class="dim">They are delivered one after the other, in the order in which they were emitted.</p>
        {data.value !== undefined && events.length === 0 && <Empty>It has no events.</Empty>}
        <ol class="timeline">
          {events.map((event) => (
            <li key={event.seq} class={event.status.toLowerCase()}>
              <p>
                <a href={href('event', event.id)}>{event.type}</a> <State of={event.status} />
              </p>
              <p class="dim">
                emitted <Time at={event.createdAt} />
                {event.deliveredAt && (
                  <>
                    , delivered <Time at={event.deliveredAt} />
                  </>
                )}
                {event.availableAt && event.status === 'PENDING' && (
                  <>
                    , due <Time at={event.availableAt} />
                  </>
                )}
              </p>
              {event.lastError && event.status !== 'SENT' && <ErrorText text={event.lastError} />}
            </li>
          ))}
        </ol>
        {data.value?.next && <p class="dim">Only the first 200 events are shown.</p>}
      </Section>
    </>
  );
}
