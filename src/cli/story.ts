import type { OutboxAdmin } from '../admin/admin.ts';
import { duration, quantity } from '../format.ts';
import type { EventStory } from '../outbox/operating/find.ts';
import { payloadCharactersMax } from '../outbox/operating/find.ts';
import type { DestinationInfo } from '../outbox/operating/list-destinations.ts';
import { situationOf } from './destination-text.ts';
import { indentJson, JsonText } from './json-text.ts';
import type { Output } from './output.ts';
import { instant, printable } from './output.ts';

const jsonCharactersMax = 4_000;

/**
 * Tells all that is known of one event, top down as somebody needs it at three in the morning. `destinations`: how those
 * stand that it waits for.
 */
export function tellStory(
  story: EventStory,
  destinations: readonly DestinationInfo[],
  now: Date,
  output: Output,
): void {
  const { paint } = output;
  const field = (name: string, value: string) => output.line(`  ${paint.dim(name.padEnd(10))}${value}`);
  const title = `${printable(story.type)}  ${printable(`${story.aggregate.type}:${story.aggregate.id}`)}`;
  output.line(`${paint.bold(title)}  ${paintStatus(story, output)}`);
  field('id', story.id);
  field('seq', story.seq);
  if (story.sameId.length > 0) {
    const others = `seq ${story.sameId.join(', ')}`;
    field('same id', paint.yellow(`${others}: a consumer that deduplicates by id takes only one of them`));
  }
  field('emitted', `${instant(story.createdAt)} (${ago(story.createdAt, now)})`);
  field('ordered', story.key === null ? 'not at all' : `by ${printable(story.key)}`);
  for (const [name, value] of situation(story, destinations, now)) field(name, value);

  output.line();
  output.line(paint.bold('What happened'));
  for (const { at, text } of history(story)) output.line(`  ${instant(at)}  ${text}`);

  output.line();
  output.line(paint.bold('Headers'));
  for (const line of headerLines(story)) output.line(`  ${line}`);
  output.line();
  output.line(`${paint.bold('Payload')} (schema version ${story.schemaVersion})`);
  for (const line of payloadLines(story)) output.line(`  ${line}`);

  const advice = whatToDo(story);
  if (advice.length === 0) return;
  output.line();
  output.line(paint.bold('What you can do'));
  for (const line of advice) output.line(`  ${line}`);
}

/** Where the event stands now, beyond its status. */
function situation(story: EventStory, destinations: readonly DestinationInfo[], now: Date): [string, string][] {
  const facts: [string, string][] = [];
  const { availableAt, holder, waitingBehind, deadLetter } = story;
  if (availableAt) {
    const wait = availableAt.getTime() - now.getTime();
    facts.push(['next try', `${instant(availableAt)} (${wait > 0 ? `in ${duration(wait)}` : 'due'})`]);
  }
  if (holder)
    facts.push(['held by', `relay ${printable(holder.name)} (host ${printable(holder.host)}, pid ${holder.pid})`]);
  if (waitingBehind)
    facts.push(['waits for', `event ${waitingBehind.id} (seq ${waitingBehind.seq}), which goes first`]);
  for (const name of story.waitingFor) {
    const destination = destinations.find((each) => each.name === name);
    const standing = destination ? `, which is ${situationOf(destination, now)}` : '';
    facts.push(['waits for', `destination ${printable(name)}${standing}`]);
  }
  if (story.orphan) facts.push(['orphan', 'it was never queued, so no relay delivers it']);
  if (story.done.length > 0) facts.push(['done for', story.done.map(printable).join(', ')]);
  if (story.owed.length > 0) facts.push(['owed to', story.owed.map(printable).join(', ')]);
  if (deadLetter?.blocking && !deadLetter.discardedAt) facts.push(['blocks', 'the following events of its key']);
  return facts;
}

function history(story: EventStory): { at: Date; text: string }[] {
  const { deadLetter } = story;
  const steps = [
    { at: story.createdAt, text: 'emitted' },
    ...story.failures.map(({ at, attempt, target, code, error, relay }) => ({
      at,
      text:
        code === 'POSTCOMMIT_E_TARGET_FORGOTTEN' || code === 'POSTCOMMIT_E_EVENT_CANCELLED'
          ? printable(error)
          : `attempt ${attempt} failed${target === null ? '' : ` in ${printable(target)}`} (relay ${printable(relay)}): ${printable(error)}`,
    })),
    ...story.deliveries.map(({ at, attempts, targets, relay }) => ({
      at,
      text: `delivered to ${targets.map(printable).join(', ')} (relay ${printable(relay)}), attempt ${attempts}`,
    })),
  ];
  if (story.waitingSince) {
    const names = story.waitingFor.map(printable).join(', ');
    steps.push({
      at: story.waitingSince,
      text: `put on the shelf, without loss of an attempt, until ${names} can have it`,
    });
  }
  if (deadLetter) {
    steps.push({
      at: deadLetter.at,
      text: `dead letter: ${reasons[deadLetter.reason]}, attempts ${deadLetter.attempts}`,
    });
    if (deadLetter.discardedAt && deadLetter.reason !== 'cancelled')
      steps.push({ at: deadLetter.discardedAt, text: 'discarded by an operator' });
  }
  return steps.sort((a, b) => a.at.getTime() - b.at.getTime());
}

const reasons: Record<NonNullable<EventStory['deadLetter']>['reason'], string> = {
  exhausted: 'all attempts used up',
  rejected: 'a handler rejected it',
  no_handler: 'no handler for its type',
  crashed: 'relays ended while delivering it',
  forgotten: 'its only destination was forgotten',
  cancelled: 'cancelled by an operator',
};

function headerLines({ headers, headersJson }: EventStory): string[] {
  const entries = Object.entries(headers);
  if (entries.length === 0) return ['none'];
  if (entries.some(([, value]) => typeof value !== 'string')) return jsonLines(headersJson);
  return entries.map(([name, value]) => `${printable(name)}: ${printable(String(value))}`);
}

function payloadLines({ payloadJson, payloadCut, payloadBytes }: EventStory): string[] {
  if (!payloadCut) return jsonLines(payloadJson);
  if (payloadBytes === null) return ['too large to show: select it from outbox_events'];
  const rest = `… (${quantity(payloadBytes, 'byte')}; --json shows the first ${quantity(payloadCharactersMax, 'character')})`;
  return [...jsonLines(payloadJson).slice(0, -1), rest];
}

function jsonLines(json: string): string[] {
  const text = indentJson(json, jsonCharactersMax + 1);
  const shown = text.slice(0, jsonCharactersMax).split('\n').map(printable);
  return text.length > jsonCharactersMax ? [...shown, '… (--json shows all of it)'] : shown;
}

/**
 * The story for --json: payload and headers as PostgreSQL writes them. A payload that is too large is null, and
 * `payloadJson` has the beginning of its text.
 */
export function storyJson({ payloadJson, headersJson, ...story }: EventStory): object {
  const payload = story.payloadCut ? { payload: null, payloadJson } : { payload: new JsonText(payloadJson) };
  return { ...story, ...payload, headers: new JsonText(headersJson) };
}

/** Every event that an id or seq names: in a partitioned log an id can name several. */
export async function findStories(admin: OutboxAdmin, idOrSeq: string): Promise<EventStory[]> {
  const first = await admin.find(idOrSeq);
  if (first === undefined) return [];
  const others = /^\d+$/.test(idOrSeq) ? [] : await Promise.all(first.sameId.map((seq) => admin.find(seq)));
  return [first, ...others.filter((story) => story !== undefined)];
}

function whatToDo({
  id: uuid,
  seq,
  sameId,
  status,
  orphan,
  availableAt,
  deadLetter,
  waitingBehind,
  waitingFor,
}: EventStory): string[] {
  const id = sameId.length > 0 ? seq : uuid;
  const giveUp = `postcommit events cancel ${id}   give it up, so that its aggregate goes on without it`;
  if (deadLetter) {
    const discard = [`postcommit dead discard ${id}   give it up`];
    return [
      `postcommit dead retry ${id}     deliver it again, attempts from zero`,
      ...(deadLetter.discardedAt ? [] : discard),
    ];
  }
  if (waitingFor.length > 0) {
    return [
      'postcommit destinations   which are away, and how much waits for them',
      ...waitingFor.map((name) => `postcommit resume ${printable(name)}   end its pause, or try it at once`),
      giveUp,
    ];
  }
  if (orphan) return ['postcommit requeue-orphans   queue this event and all others that were never queued'];
  if (waitingBehind) return [`postcommit events ${waitingBehind.id}   the event that goes first`, giveUp];
  if (status === 'PENDING' && availableAt)
    return [`postcommit events make-due ${id}   deliver it now, without waiting for its delay or backoff`, giveUp];
  return status === 'SENT' ? [`postcommit replay ${id}   deliver it once more`] : [];
}

function paintStatus({ status, deadLetter }: EventStory, { paint }: Output): string {
  if (deadLetter?.discardedAt) return paint.yellow(`${status} (discarded)`);
  if (status === 'FAILED') return paint.red('FAILED (dead letter)');
  return status === 'SENT' ? paint.green(status) : paint.yellow(status);
}

export function ago(time: Date, now: Date): string {
  return `${duration(Math.max(0, now.getTime() - time.getTime()))} ago`;
}
