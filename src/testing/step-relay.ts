import type { OutboxAdmin } from '../admin/admin.ts';
import { PostcommitError } from '../errors.ts';
import type { Relay } from '../relay/relay.ts';
import type { RunOnceOptions } from '../relay/run-once-options.ts';
import type { LifecycleEvents } from '../relay/telemetry/lifecycle.ts';
import { unknownOption } from '../suggest.ts';

export interface StepOptions extends RunOnceOptions {
  /**
   * `outbox.admin`: delayed events, and events that wait for a retry, are made due before the step, so that the test does not wait for
   * them. Default: they wait until the database's clock says so.
   */
  makeDue?: OutboxAdmin;
}

/** What one step did, in order. Lists are empty where nothing of the kind happened. */
export interface RelayStep {
  delivered: LifecycleEvents['delivered'][0][];
  /** Attempts that failed and will be repeated. */
  failed: LifecycleEvents['failed'][0][];
  deadLettered: LifecycleEvents['deadLettered'][0][];
  /** Events that wait for a destination that is down. */
  unavailable: LifecycleEvents['unavailable'][0][];
  /** Whether nothing was left to deliver, see `relay.runOnce()`. */
  complete: boolean;
}

/**
 * Delivers what is due now with a relay that is idle, and returns what happened to each event: one call of `relay.runOnce()`. When it has
 * returned, nothing runs in the background. A retry that becomes due meanwhile belongs to the step; the first delay is random, from 0 to
 * a second, so give the relay `retry: { delaysMs: [60_000] }` where a test counts attempts.
 *
 * @example
 * import { stepRelay } from 'postcommit/testing';
 *
 * const first = await stepRelay(relay);
 * console.log(first.failed.map(({ eventType, error }) => [eventType, error]));
 * const second = await stepRelay(relay, { makeDue: outbox.admin }); // The retry, without waiting for it.
 * console.log(second.delivered.length);
 */
export async function stepRelay(relay: Relay, options: StepOptions = {}): Promise<RelayStep> {
  const unknown = unknownOption(options, ['makeDue', 'timeoutMs']);
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `stepRelay(): ${unknown}`);
  const { makeDue, ...runOptions } = options;
  await makeDue?.makeDue({ all: true });
  const step: RelayStep = { delivered: [], failed: [], deadLettered: [], unavailable: [], complete: false };
  const listeners = {
    delivered: (facts: LifecycleEvents['delivered'][0]) => step.delivered.push(facts),
    failed: (facts: LifecycleEvents['failed'][0]) => step.failed.push(facts),
    deadLettered: (facts: LifecycleEvents['deadLettered'][0]) => step.deadLettered.push(facts),
    unavailable: (facts: LifecycleEvents['unavailable'][0]) => step.unavailable.push(facts),
  };
  const names = Object.keys(listeners) as (keyof typeof listeners)[];
  for (const name of names) relay.on(name, listeners[name]);
  try {
    const { complete } = await relay.runOnce(runOptions);
    return { ...step, complete };
  } finally {
    for (const name of names) relay.off(name, listeners[name]);
  }
}
