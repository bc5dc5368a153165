import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { type Action, ActionDialog } from './action.tsx';
import { apiUrl, canChange, get, me, type StoryData } from './api.ts';
import { EditDialog } from './edit.tsx';
import { bytes, plural, pretty } from './format.ts';
import { overview } from './live.ts';
import { useLoaded } from './load.ts';
import { AggregateLink, Copy, ErrorText, EventLink, Problem, Section, State, Time } from './parts.tsx';
import { route } from './route.ts';

export function EventPage() {
  const [id = ''] = route.value.rest;
  const { data, problem, reload } = useLoaded(`${route.value.outbox} ${id}`, () =>
    get<StoryData>(`events/${encodeURIComponent(id)}`),
  );
  const story = data.value;
  // An event that is not settled yet is read again with each state of the outbox.
  useEffect(() => {
    if (story?.status === 'PENDING' || story?.status === 'PROCESSING') reload();
  }, [overview.value?.at]);
  return (
    <>
      <h1>Event</h1>
      <Problem text={problem.value} />
      {story !== undefined && <Story story={story} reload={reload} />}
    </>
  );
}

function Story({ story, reload }: { story: StoryData; reload: () => void }) {
  const trace = traceIdOf(story);
  const traceUrl = me.value?.traceUrl;
  return (
    <>
      <dl class="facts story">
        <Fact name="Id">
          <span class="mono wrap">{story.id}</span> <Copy text={story.id} label="Copy the id" />
        </Fact>
        <Fact name="Status">
          <State of={story.deadLetter?.discardedAt ? 'discarded' : story.status} />
        </Fact>
        <Fact name="Type">
          {story.type} <span class="dim">version {story.schemaVersion}</span>
        </Fact>
        <Fact name="Aggregate">
          <AggregateLink of={story.aggregate} />
        </Fact>
        <Fact name="Queue">{story.queue}</Fact>
        <Fact name="Seq">
          <span class="mono">{story.seq}</span>
        </Fact>
        {trace !== undefined && (
          <Fact name="Trace">
            {traceUrl === undefined ? (
              <span class="mono wrap">{trace}</span>
            ) : (
              <a class="mono wrap" href={traceUrl.replaceAll('{traceId}', trace)} rel="noreferrer">
                {trace}
              </a>
            )}
          </Fact>
        )}
      </dl>
      {canChange() && <Actions story={story} reload={reload} />}
      <Section title="Story">
        <ol class="timeline">
          {momentsOf(story).map((moment) => (
            <li key={moment.key} class={moment.tone}>
              <p>
                <b>{moment.what}</b> {moment.at && <Time at={moment.at} exact />}
              </p>
              {moment.detail}
            </li>
          ))}
        </ol>
      </Section>
      <Payload story={story} />
      <Section title="Headers">
        {Object.keys(story.headers).length === 0 ? (
          <p class="empty">No headers.</p>
        ) : (
          <dl class="facts">
            {Object.entries(story.headers).map(([name, value]) => (
              <Fact key={name} name={name}>
                <span class="mono wrap">{typeof value === 'string' ? value : JSON.stringify(value)}</span>
              </Fact>
            ))}
          </dl>
        )}
      </Section>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Payload({ story }: { story: StoryData }) {
  const { json, truncated, redacted } = story.payload;
  const size = story.payloadBytes === null ? 'very large' : bytes(story.payloadBytes);
  const outbox = encodeURIComponent(route.value.outbox);
  return (
    <Section
      title="Payload"
      aside={
        <span class="dim">
          {size}
          {story.edits.length > 0 && ', edited'}
          {redacted && ', partly hidden'}{' '}
          {truncated && json !== null && (
            <a href={apiUrl(`${outbox}/events/${story.seq}/payload`)} download={`${story.id}.json`}>
              Download
            </a>
          )}
        </span>
      }
    >
      {json === null ? (
        <p class="empty">It is too large to hide parts of it, so nothing of it is shown.</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable with the keyboard.
        <pre class="code" tabIndex={0}>
          {pretty(json)}
          {truncated && ' …'}
        </pre>
      )}
    </Section>
  );
}

interface Moment {
  key: string;
  at?: string;
  what: string;
  tone: string;
  detail?: ComponentChildren;
}

/** What happened to the event, oldest first, and what it waits for now. */
function momentsOf(story: StoryData): Moment[] {
  const past: Moment[] = [
    { key: 'emitted', at: story.createdAt, what: 'Emitted', tone: 'quiet' },
    ...story.failures.map((failure, index) => ({
      key: `failure ${index}`,
      at: failure.at,
      what: `Attempt ${failure.attempt} failed`,
      tone: 'failed',
      detail: (
        <>
          <p class="dim">
            {failure.target === null ? 'no target' : `to ${failure.target}`}, by relay {failure.relay}
            {failure.code !== null && `, ${failure.code}`}
          </p>
          <ErrorText text={failure.error} />
        </>
      ),
    })),
    ...story.deliveries.map((delivery, index) => ({
      key: `delivery ${index}`,
      at: delivery.at,
      what: 'Delivered',
      tone: 'sent',
      detail: (
        <p class="dim">
          to {delivery.targets.join(', ') || 'its targets'}, by relay {delivery.relay},{' '}
          {plural(delivery.attempts, 'attempt')}
        </p>
      ),
    })),
    ...story.edits.map((edit, index) => ({
      key: `edit ${index}`,
      at: edit.at,
      what: `Payload edited by ${edit.by}${edit.by === edit.databaseRole ? '' : ` (database role ${edit.databaseRole})`}`,
      tone: 'processing',
      detail: (
        <>
          {edit.reason !== null && <p class="dim">{edit.reason}</p>}
          <details>
            <summary>The payload before</summary>
            <pre class="code">{edit.replacedJson === null ? 'It is hidden.' : pretty(edit.replacedJson)}</pre>
          </details>
        </>
      ),
    })),
  ];
  const { deadLetter } = story;
  if (deadLetter) {
    const detail = (
      <p class="dim">{deadLetter.blocking ? 'Later events of its aggregate wait for it.' : 'It blocks nothing.'}</p>
    );
    past.push({ key: 'dead', at: deadLetter.at, what: `Dead letter: ${deadLetter.reason}`, tone: 'failed', detail });
    if (deadLetter.discardedAt) {
      past.push({ key: 'discarded', at: deadLetter.discardedAt, what: 'Discarded', tone: 'quiet' });
    }
  }
  past.sort((a, b) => Date.parse(a.at ?? '') - Date.parse(b.at ?? ''));
  return [...past, ...presentOf(story)];
}

function presentOf(story: StoryData): Moment[] {
  const present: Moment[] = [];
  const add = (what: string, detail?: ComponentChildren, at?: string) =>
    present.push({ key: what, what, tone: 'processing', detail, ...(at !== undefined && { at }) });
  if (story.holder) add(`In flight at relay ${story.holder.name}`);
  for (const each of story.progress)
    add(`${each.handler}: ${Math.round(each.fraction * 100)}%`, <p class="dim">{each.note}</p>);
  if (story.waitingFor.length > 0) add(`Waits for ${story.waitingFor.join(', ')}`, undefined, story.waitingSince);
  if (story.waitingBehind) {
    add('Waits for an earlier event of its aggregate', <EventLink {...story.waitingBehind} />);
  } else if (story.availableAt && story.status === 'PENDING') add('Due', undefined, story.availableAt);
  if (story.unqueued) add('Never queued', <p class="dim">npx postcommit requeue-unqueued queues it.</p>);
  return present;
}

function Actions({ story, reload }: { story: StoryData; reload: () => void }) {
  const action = useSignal<Action | undefined>(undefined);
  const editing = useSignal(false);
  const target = { target: { ids: [story.seq] } };
  const dead = story.deadLetter;
  const offers: Action[] = [];
  if (dead) {
    offers.push({
      title: 'Retry this event',
      verb: 'Retry',
      path: 'dead-letters/retry',
      body: target,
      explanation: 'It goes back into the queue, due now. Targets that already have it do not get it again.',
    });
  }
  if (dead && !dead.discardedAt) {
    offers.push({
      title: 'Discard this event',
      verb: 'Discard',
      danger: true,
      path: 'dead-letters/discard',
      body: target,
      explanation: 'It is never delivered, and no longer blocks its aggregate. Its history stays.',
    });
  }
  if (story.status === 'SENT') {
    offers.push({
      title: 'Deliver this event again',
      verb: 'Replay',
      path: 'events/replay',
      body: target,
      explanation: 'All of its targets get it again, with the same id.',
    });
  }
  if (story.status === 'PENDING' || story.status === 'PROCESSING') {
    offers.push(
      {
        title: 'Deliver this event now',
        verb: 'Make due',
        path: 'events/make-due',
        body: target,
        explanation: 'A delay or a wait after a failed attempt ends now.',
      },
      {
        title: 'Cancel this event',
        verb: 'Cancel event',
        danger: true,
        path: 'events/cancel',
        body: target,
        explanation: 'It is never delivered, unless a delivery in flight is recorded first.',
      },
    );
  }
  return (
    <div class="actions">
      {offers.map((offer) => (
        <button
          key={offer.verb}
          type="button"
          class={offer.danger ? 'danger' : offer.verb === 'Retry' ? 'primary' : ''}
          onClick={() => {
            action.value = offer;
          }}
        >
          {offer.verb}
        </button>
      ))}
      {dead && (
        <button
          type="button"
          disabled={story.payload.redacted || story.payload.truncated}
          title={story.payload.redacted || story.payload.truncated ? 'Parts of the payload are not shown.' : ''}
          onClick={() => {
            editing.value = true;
          }}
        >
          Edit and retry
        </button>
      )}
      {action.value && (
        <ActionDialog
          action={action.value}
          onClose={(changed) => {
            action.value = undefined;
            if (changed) reload();
          }}
        />
      )}
      {editing.value && (
        <EditDialog
          story={story}
          onClose={(changed) => {
            editing.value = false;
            if (changed) reload();
          }}
        />
      )}
    </div>
  );
}

/** The trace id of a W3C `traceparent` header. */
function traceIdOf({ headers }: StoryData): string | undefined {
  const parent = headers.traceparent;
  return typeof parent === 'string' ? /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(parent)?.[1] : undefined;
}
