import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { getOutboxes, me, type OverviewData } from './api.ts';
import { Chart } from './chart.tsx';
import { Findings } from './findings.tsx';
import { duration, number, plural, shortNumber } from './format.ts';
import { overview, trouble } from './live.ts';
import { useLoaded } from './load.ts';
import { Partitions } from './partitions.tsx';
import { AggregateLink, Empty, ErrorText, EventLink, Section, State, Table, Time } from './parts.tsx';
import { href, route } from './route.ts';

export function OverviewPage() {
  const data = overview.value;
  const several = (me.value?.outboxes.length ?? 0) > 1;
  if (data === undefined) {
    return (
      <>
        <h1>{route.value.outbox}</h1>
        <Empty>{trouble.value === undefined ? 'Reading the outbox …' : 'Its state is not known.'}</Empty>
        {several && <Outboxes />}
      </>
    );
  }
  return (
    <>
      <HealthLine data={data} />
      {several && <Outboxes />}
      <Figures data={data} />
      <Charts data={data} />
      <div class="columns">
        <Destinations data={data} />
        <Queues data={data} />
      </div>
      <Running data={data} />
      <Blocked data={data} />
      <Relays data={data} />
      <Partitions />
      <Findings />
    </>
  );
}

const outboxesReloadMs = 5_000;

/** All outboxes of this dashboard, each with its health in one sentence. */
function Outboxes() {
  const { data, reload } = useLoaded('outboxes', getOutboxes);
  useEffect(() => {
    const timer = setInterval(reload, outboxesReloadMs);
    return () => clearInterval(timer);
  }, [reload]);
  return (
    <Section title="Outboxes">
      <Table label="Outboxes" columns={['Name', 'State', '']}>
        {(data.value ?? []).map(({ name, level, sentence }) => (
          <tr key={name}>
            <td>
              <a href={`#/${encodeURIComponent(name)}/overview`}>{name}</a>
            </td>
            <td>
              <State of={level} />
            </td>
            <td>{sentence}</td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

function HealthLine({ data: { health } }: { data: OverviewData }) {
  return (
    <div class={`health ${health.level}`} role="status">
      <h1>{health.sentence}</h1>
      {health.reasons.length > 1 && (
        <ul>
          {health.reasons.slice(1).map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Figure({ name, value, note, link }: { name: string; value: string; note?: string; link?: string }) {
  const content: ComponentChildren = (
    <>
      <span class="name">{name}</span>
      <span class="value">{value}</span>
      <span class="note">{note ?? ' '}</span>
    </>
  );
  return link === undefined ? (
    <li class="figure">{content}</li>
  ) : (
    <li class="figure">
      <a href={link}>{content}</a>
    </li>
  );
}

function Figures({ data: { counts, latency, history } }: { data: OverviewData }) {
  const last = history.at(-1);
  const count = (value: number, isExact: boolean) => `${isExact ? '' : '≈ '}${shortNumber(value)}`;
  const rate = (value: number | null | undefined) =>
    value === null || value === undefined ? '–' : `${shortNumber(value)}/s`;
  const waits = [
    counts.waiting > 0 && `${shortNumber(counts.waiting)} not due`,
    counts.shelved > 0 && `${shortNumber(counts.shelved)} on the shelf`,
  ];
  return (
    <ul class="figures" aria-label="Figures">
      <Figure
        name="Waiting"
        value={count(counts.pending, counts.exact.pending)}
        note={waits.filter(Boolean).join(', ') || 'all due now'}
        link={href('events', 'PENDING')}
      />
      <Figure
        name="Oldest due"
        value={counts.oldestPendingMs === null ? '–' : duration(counts.oldestPendingMs)}
        note={counts.oldestPendingMs === null ? 'none is due' : 'not delivered yet'}
      />
      <Figure
        name="Delivered"
        value={rate(last?.deliveredPerSecond)}
        note={last?.emittedPerSecond == null ? 'measuring' : `${rate(last.emittedPerSecond)} emitted`}
      />
      <Figure
        name="Latency, median"
        value={latency.p50Ms === null ? '–' : duration(latency.p50Ms)}
        note={latency.p95Ms === null ? 'nothing in the last minute' : `95% within ${duration(latency.p95Ms)}`}
      />
      <Figure
        name="Dead letters"
        value={count(counts.failed, counts.exact.failed)}
        note={counts.blocked > 0 ? `${plural(counts.blocked, 'aggregate')} blocked` : 'none blocks'}
        link={href('dead-letters')}
      />
      <Figure
        name="In the log, delivered"
        value={count(counts.delivered, counts.exact.delivered)}
        link={href('events', 'SENT')}
      />
    </ul>
  );
}

function Charts({ data: { history } }: { data: OverviewData }) {
  const times = history.map(({ at }) => at);
  const perSecond = (value: number) => `${shortNumber(value)}/s`;
  return (
    <section class="charts" aria-label="The last quarter of an hour">
      <Chart
        title="Throughput"
        times={times}
        format={perSecond}
        lines={[
          { label: 'delivered', colour: '--series-a', values: history.map((point) => point.deliveredPerSecond) },
          { label: 'emitted', colour: '--series-b', values: history.map((point) => point.emittedPerSecond) },
        ]}
      />
      <Chart
        title="Latency"
        times={times}
        format={duration}
        lines={[
          { label: 'median', colour: '--series-a', values: history.map((point) => point.p50Ms) },
          { label: '95%', colour: '--series-b', values: history.map((point) => point.p95Ms) },
        ]}
      />
      <Chart
        title="Backlog"
        times={times}
        format={shortNumber}
        lines={[{ label: 'events', colour: '--series-a', values: history.map((point) => point.backlog) }]}
      />
      <Chart
        title="Failed attempts"
        times={times}
        format={(value) => `${number(value)}%`}
        lines={[
          {
            label: 'of all',
            colour: '--series-c',
            values: history.map(({ errorRate }) => (errorRate === null ? null : errorRate * 100)),
          },
        ]}
      />
    </section>
  );
}

function Destinations({ data: { destinations } }: { data: OverviewData }) {
  return (
    <Section title="Destinations">
      {destinations.length === 0 ? (
        <Empty>No destinations. Handlers deliver the events.</Empty>
      ) : (
        <Table label="Destinations" columns={['Name', 'State', 'Waiting', 'Relays']}>
          {destinations.map((each) => (
            <tr key={each.name}>
              <td>{each.name}</td>
              <td>
                <State of={each.state} /> {each.downSince && <Time at={each.downSince} />}
                {each.error !== undefined && each.state === 'down' && <ErrorText text={each.error} />}
                {each.reason !== undefined && each.state === 'paused' && <span class="dim"> {each.reason}</span>}
              </td>
              <td class="number">{number(each.waiting)}</td>
              <td class="number">{each.relays}</td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}

function Queues({ data: { queues } }: { data: OverviewData }) {
  return (
    <Section title="Queues">
      {queues.length === 0 ? (
        <Empty>No queue has events, and no relay is running.</Empty>
      ) : (
        <Table label="Queues" columns={['Name', 'State', 'Ready', 'In flight', 'Not due', 'Relays']}>
          {queues.map((each) => (
            <tr key={each.name}>
              <td>{each.name}</td>
              <td>
                <State of={each.state} />
              </td>
              <td class="number">{number(each.ready)}</td>
              <td class="number">{number(each.inFlight)}</td>
              <td class="number">{number(each.waiting)}</td>
              <td class="number">{each.relays}</td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}

function Running({ data: { progress } }: { data: OverviewData }) {
  if (progress.length === 0) return null;
  return (
    <Section title="Long handlers">
      <Table label="Long handlers" columns={['Event', 'Type', 'Handler', 'Progress', 'Since']}>
        {progress.map((each) => (
          <tr key={`${each.seq} ${each.handler}`}>
            <td>
              <EventLink id={each.id} seq={each.seq} />
            </td>
            <td>{each.type}</td>
            <td>{each.handler}</td>
            <td>
              <progress
                value={each.fraction}
                max={1}
                aria-label={`${each.handler}: ${Math.round(each.fraction * 100)}%`}
              />{' '}
              {each.note}
            </td>
            <td>
              <Time at={each.since} />
            </td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

function Blocked({ data: { blocked } }: { data: OverviewData }) {
  if (blocked.length === 0) return null;
  return (
    <Section title="Blocked aggregates">
      <Table label="Blocked aggregates" columns={['Aggregate', 'Since', 'Waiting', 'Blocked by', 'Error']}>
        {blocked.map((each) => (
          <tr key={each.seq}>
            <td>{each.aggregate ? <AggregateLink of={each.aggregate} /> : each.key}</td>
            <td>
              <Time at={each.since} />
            </td>
            <td class="number">{number(each.waiting)}</td>
            <td>
              <EventLink id={each.id} seq={each.seq} />
            </td>
            <td>
              <ErrorText text={each.error} />
            </td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

const laneReasons: Record<string, string> = {
  listening: 'notifications arrive',
  no_notifications: 'no notifications arrive',
  listen_off: 'listen is off',
};

/** How a relay learns of new events, from its last heartbeat. */
function laneText(lane: unknown): string {
  const { kind, reason } = (lane ?? {}) as { kind?: unknown; reason?: unknown };
  if (typeof kind !== 'string') return '–';
  return `${kind}: ${laneReasons[String(reason)] ?? String(reason)}`;
}

function Relays({ data: { relays, differences, maintenance } }: { data: OverviewData }) {
  const notes = [
    differences.versions.length > 0 && `They run ${differences.versions.length} versions.`,
    differences.settings && 'Their routes or retry settings differ.',
    ...differences.lacking.map(({ relay, targets }) => `${relay} lacks ${targets.slice(0, 3).join(', ')}.`),
  ].filter((note) => note !== false);
  return (
    <Section title="Relays">
      {relays.length === 0 ? (
        <Empty>No relay is running. Start one: npx postcommit relay.</Empty>
      ) : (
        <Table label="Relays" columns={['Name', 'State', 'Host', 'Version', 'Queues', 'Lane', 'Started', 'Heartbeat']}>
          {relays.map((each) => (
            <tr key={each.token}>
              <td>
                {each.name} {maintenance.leader?.token === each.token && <span class="tag">maintenance</span>}
              </td>
              <td>
                <State of={each.state} />
              </td>
              <td>
                {each.host} <span class="dim">{each.pid}</span>
              </td>
              <td>{each.version ?? '–'}</td>
              <td>{each.queues.join(', ')}</td>
              <td>{laneText(each.stats.lane)}</td>
              <td>
                <Time at={each.startedAt} />
              </td>
              <td>
                <Time at={each.heartbeatAt} />
              </td>
            </tr>
          ))}
        </Table>
      )}
      {notes.map((note) => (
        <p key={note} class="remark">
          {note}
        </p>
      ))}
    </Section>
  );
}
