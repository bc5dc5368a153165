import { quantity } from '../../format.ts';
import type { RowCounts } from '../../outbox/operating/count.ts';
import type { MissingTarget } from '../../outbox/operating/list-missing-targets.ts';
import type { RelayInfo } from '../../outbox/operating/list-relays.ts';
import { relayDifferences, someOf } from '../relay-differences.ts';
import type { Judgement } from './finding.ts';
import { critical, note, ok, warning } from './finding.ts';

export function judgeRelays(
  relays: readonly RelayInfo[],
  counts: RowCounts,
  missing: readonly MissingTarget[] = [],
): Judgement[] {
  const alive = relays.filter(({ state }) => state === 'alive').length;
  const found = relays
    .filter(({ state }) => state === 'overdue')
    .map(({ name, host, pid }) =>
      warning(
        `the relay ${name} (host ${host}, pid ${pid}) is overdue: its lease ran out`,
        'What it holds waits until another relay declares it lost.',
        'postcommit relay',
      ),
    );
  if (alive === 0) {
    const due = counts.pending + counts.processing - counts.waiting;
    const amount = `${counts.exact.pending ? '' : 'about '}${quantity(due, 'event')}`;
    found.unshift(
      due > 0
        ? critical(`no relay is alive, and ${amount} due`, 'Nothing is delivered.', 'postcommit relay')
        : note('no relay is alive', 'Nothing is delivered; nothing is due now either.', 'postcommit relay'),
    );
  } else {
    found.push(...judgeMissing(missing), ...judgeDifferences(relays));
  }
  return found.length > 0 ? found : [ok(`${quantity(alive, 'relay')} alive`)];
}

function judgeMissing(missing: readonly MissingTarget[]): Judgement[] {
  return missing.map(({ target, events }) =>
    warning(
      `no living relay has ${target}, and ${quantity(events, 'event')} in the queue ${events === 1 ? 'is' : 'are'} owed to it`,
      'They wait, and the later events of their aggregates with them, until a relay that has it starts.',
      `postcommit forget ${target}`,
    ),
  );
}

function judgeDifferences(relays: readonly RelayInfo[]): Judgement[] {
  const { versions, lacking, settings } = relayDifferences(relays);
  const found = lacking.map(({ relay, targets }) =>
    warning(
      `the relay ${relay} lacks ${someOf(targets)}, which other living relays have`,
      'Events that it takes first are not delivered there. During a rolling deployment this ends by itself.',
    ),
  );
  if (versions.length > 0) {
    const list = versions.map(({ version, relays: names }) => `${version} (${someOf(names, 3)})`).join(', ');
    found.push(note(`living relays run different versions: ${list}`, 'Expected during a rolling deployment.'));
  }
  if (settings) {
    found.push(
      note(
        'living relays have the same targets and differ in route, retry or poison settings',
        'What becomes of an event depends on which of them takes it.',
      ),
    );
  }
  return found;
}
