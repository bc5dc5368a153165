/** How a relay learns of new events, and why that way. */
export interface LaneState {
  /** The one there is: it claims after a notification, and otherwise after a pause of at most `pollIntervalMs`. */
  kind: 'polling';
  /**
   * `listening`: notifications arrive. `no_notifications`: they are expected and do not arrive, as behind a transaction pooler.
   * `listen_off`: the option `listen` is off. Without notifications it polls more often, see `QueueBell`.
   */
  reason: 'listening' | 'no_notifications' | 'listen_off';
}

export function laneState(listening: boolean, listen: boolean): LaneState {
  return { kind: 'polling', reason: listening ? 'listening' : listen ? 'no_notifications' : 'listen_off' };
}
