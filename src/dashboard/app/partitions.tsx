import { get, type PartitioningData } from './api.ts';
import { bytes, number, plural } from './format.ts';
import { useLoaded } from './load.ts';
import { Problem, Section, State, Table, Time } from './parts.tsx';
import { route } from './route.ts';

const shownMax = 10;

/** How the log is partitioned, with its newest partitions and all that cannot be dropped. */
export function Partitions() {
  const { data, problem } = useLoaded(`partitions ${route.value.outbox}`, () => get<PartitioningData>('partitions'));
  const partitioning = data.value;
  return (
    <Section title="Partitions">
      <Problem text={problem.value} />
      {partitioning !== undefined && <Partitioned of={partitioning} />}
    </Section>
  );
}

function Partitioned({ of: { unit, bytes: size, partitions, default: rest } }: { of: PartitioningData }) {
  if (unit === 'none') return <p class="dim">The log is one table: {bytes(size)} with the delivery record.</p>;
  const newest = partitions.slice(-shownMax);
  const older = partitions.slice(0, -shownMax);
  const held = older.filter(({ undelivered }) => undelivered > 0);
  const hidden = older.length - held.length;
  return (
    <>
      <p class="dim">
        The log is partitioned by {unit}: {bytes(size)} with the delivery record.
        {hidden > 0 && ` ${plural(hidden, 'older partition')} not shown.`}
      </p>
      <Table
        label="Partitions"
        columns={['Number', 'State', 'Opened', 'Closed', 'Events', 'Size', 'Undelivered', 'Dead letters']}
      >
        {[...held, ...newest].reverse().map((each) => (
          <tr key={each.number}>
            <td>{each.number}</td>
            <td>
              <State of={each.state} />
            </td>
            <td>{each.openedAt ? <Time at={each.openedAt} /> : '–'}</td>
            <td>{each.closedAt ? <Time at={each.closedAt} /> : '–'}</td>
            <td class="number">{number(each.events)}</td>
            <td class="number">{bytes(each.bytes)}</td>
            <td class="number">{number(each.undelivered)}</td>
            <td class="number">{number(each.deadLetters)}</td>
          </tr>
        ))}
      </Table>
      {rest !== undefined && rest.events !== 0 && (
        <p class="dim">
          The default partition has {rest.events === null ? 'events' : plural(rest.events, 'event')}: retention deletes
          these row by row.
        </p>
      )}
    </>
  );
}
