/**
 * The contract of every long-running part of a relay: doorbell, connections, lease, lanes, destinations, maintenance. A
 * service runs once; the relay creates new ones for each run. `stop()` may be called at any time and any number of times:
 * before `start()`, while it is pending, and again. When it has resolved, nothing of the service runs any more: no timer, no
 * connection, no subscription. A `start()` that is interrupted by `stop()`, or called after it, may fail and leaves nothing
 * running either.
 */
export interface Service {
  start(): Promise<void>;
  stop(): Promise<void>;
}
