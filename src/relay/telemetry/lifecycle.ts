import { channel } from 'node:diagnostics_channel';
import { EventEmitter } from 'node:events';
import { callListeners } from '../../telemetry/call-safely.ts';
import type { EventFacts } from '../event/event-facts.ts';

/** The events that a relay emits, by name. Each is also published on the diagnostics channel `postcommit:relay:<name>`. */
export interface LifecycleEvents {
  started: [{ relay: string; token: string }];
  stopped: [{ relay: string; released: number }];
  claimed: [{ queue: string; count: number; takenOver: number }];
  delivered: [EventFacts & { targets: readonly string[]; latencyMs: number }];
  /** An attempt failed and will be retried after `delayMs`. */
  failed: [EventFacts & { delayMs: number; error: string; target: string | null }];
  /** The event became a dead letter. `blocking`: its key waits until the dead letter is retried or discarded. */
  deadLettered: [EventFacts & { reason: string; error: string; blocking: boolean }];
  /** The event went back to the queue; no attempt was counted. */
  released: [EventFacts];
  /** The event is on the shelf for these destinations, which are down or paused; no attempt was counted. */
  unavailable: [EventFacts & { waitsFor: readonly string[] }];
  /** A destination is down: its events go onto the shelf. Emitted by every relay that has the destination. */
  destinationDown: [{ destination: string; error: string }];
  destinationUp: [{ destination: string }];
  destinationPaused: [{ destination: string }];
  destinationResumed: [{ destination: string }];
  /** An operator cancelled the event while this relay had claimed it, and its delivery has ended. */
  cancelled: [EventFacts];
  /** A result came too late: another relay owns the event now, or it was cancelled. */
  fenced: [EventFacts];
  /** This relay declared another one lost; the events that it owned are free. Once for each lost relay. */
  relayLost: [{ token: string; name: string; host: string; pid: number }];
  /** This relay was declared lost, or the server does not have its claims. It dropped all claimed events and registers again. */
  leaseLost: [{ relay: string; token: string }];
  /** This relay does maintenance from now on. The epoch grows with each change. */
  leading: [{ relay: string; epoch: string }];
  /** Another relay does, or may do, maintenance from now on. */
  deposed: [{ relay: string; epoch: string }];
  /** A maintenance task ran. `changed`: how many rows it removed, or other things it did. */
  maintained: [{ task: string; durationMs: number; changed: number; note?: string }];
  maintenanceFailed: [{ task: string; durationMs: number; error: string }];
  /** This relay emitted a tick of a schedule, or a trigger. */
  scheduleEmitted: [{ schedule: string; tickAt: Date; triggered: boolean; eventIds: readonly string[] }];
  /** A tick could not be emitted: its event is invalid, or the database refused it. The relay retries. */
  scheduleFailed: [{ schedule: string; error: string }];
  disconnected: [{ connection: string; error: string }];
  /** LISTEN receives no notifications although it should; the relay polls instead. */
  notificationsLost: [{ silentMs: number }];
}

const channels = new Map<string, ReturnType<typeof channel>>();

/** A typed emitter that also publishes on `node:diagnostics_channel`, and costs almost nothing without a listener. */
export class Lifecycle extends EventEmitter<LifecycleEvents> {
  wants(name: keyof LifecycleEvents): boolean {
    return this.listenerCount(name) > 0 || diagnosticsChannel(name).hasSubscribers;
  }

  tell<Name extends keyof LifecycleEvents>(name: Name, facts: LifecycleEvents[Name][0]): void {
    diagnosticsChannel(name).publish(facts);
    callListeners(this, name, facts, (error) => this.onListenerError?.(name, error));
  }

  /** Called when a listener throws, or the promise that it returned is rejected. */
  protected onListenerError?(name: string, error: unknown): void;
}

function diagnosticsChannel(name: string): ReturnType<typeof channel> {
  let found = channels.get(name);
  if (!found) {
    found = channel(`postcommit:relay:${name}`);
    channels.set(name, found);
  }
  return found;
}
