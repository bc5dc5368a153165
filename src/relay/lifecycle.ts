import { channel } from 'node:diagnostics_channel';
import { EventEmitter } from 'node:events';

/** Which event it is about. */
export interface EventFacts {
  readonly eventId: string;
  readonly eventType: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly seq: string;
  /** 1 for the first try. */
  readonly attempt: number;
}

/** What a relay tells while it works, by name. Each is also published on the diagnostics channel `postcommit:relay:<name>`. */
export interface LifecycleEvents {
  started: [{ relay: string; token: string }];
  stopped: [{ relay: string; released: number }];
  claimed: [{ count: number; rescued: number }];
  delivered: [EventFacts & { targets: readonly string[]; latencyMs: number }];
  retried: [EventFacts & { delayMs: number; error: string; target: string | null }];
  dead: [EventFacts & { reason: string; error: string; blocking: boolean }];
  released: [EventFacts];
  /** It has all but these destinations, which are away or paused, and waits for them without losing an attempt. */
  shelved: [EventFacts & { waitsFor: readonly string[] }];
  /** A destination is away: its events wait from now on. Told by every relay that learns of it. */
  destinationDown: [{ destination: string; error: string }];
  destinationUp: [{ destination: string }];
  destinationPaused: [{ destination: string }];
  destinationResumed: [{ destination: string }];
  /** A result came too late: another relay owns the event now. */
  fenced: [EventFacts];
  /** Another relay was declared lost; what it held is free. */
  rescued: [{ token: string; name: string; host: string; pid: number }];
  /** This relay lost its own lease; it dropped what it held and registered anew. */
  leaseLost: [{ relay: string; token: string }];
  /** This relay is the one that does maintenance from now on. The epoch grows with each change. */
  leading: [{ relay: string; epoch: string }];
  /** Another relay does, or may do, maintenance from now on. */
  deposed: [{ relay: string; epoch: string }];
  /** A task of maintenance was done. `changed`: rows it removed, or other things it did. */
  maintained: [{ task: string; durationMs: number; changed: number; note?: string }];
  maintenanceFailed: [{ task: string; durationMs: number; error: string }];
  disconnected: [{ connection: string; error: string }];
  /** The doorbell does not ring although it should; polling goes on underneath. */
  doorbellDeaf: [{ silentMs: number }];
}

const channels = new Map<string, ReturnType<typeof channel>>();

/** A typed emitter that also publishes on `node:diagnostics_channel`, and costs next to nothing when nobody listens. */
export class Lifecycle extends EventEmitter<LifecycleEvents> {
  wants(name: keyof LifecycleEvents): boolean {
    return this.listenerCount(name) > 0 || diagnosticsChannel(name).hasSubscribers;
  }

  tell<Name extends keyof LifecycleEvents>(name: Name, facts: LifecycleEvents[Name][0]): void {
    diagnosticsChannel(name).publish(facts);
    // A listener that throws must not break the relay's own flow, keep the others from hearing, nor end the process.
    for (const listener of this.rawListeners(name)) {
      try {
        Reflect.apply(listener, this, [facts]);
      } catch (error) {
        this.onListenerError?.(name, error);
      }
    }
  }

  /** Told when a listener throws. */
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
