import { resolver } from './requeue.ts';

/** Discards dead letters. The rows stay as history; a key that one of them blocked continues. */
export const discard = resolver('discard');
