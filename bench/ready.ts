import { warnIfBusy } from './machine.ts';
import { build, contenderNode, installPeers } from './peers.ts';

/** What every suite begins with: the peers installed, our own build made anew. Answers the Node that all run under. */
export function makeReady(): string {
  warnIfBusy();
  installPeers();
  build();
  return contenderNode();
}
