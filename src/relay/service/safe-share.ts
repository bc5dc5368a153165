/**
 * The part of a lease, the relay's own or that of a duty, on which its owner relies after it sent a renewal: it stops before
 * another relay may take over.
 */
export const safeShare = 0.9;
