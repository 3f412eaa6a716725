/**
 * Times of a cluster that its environment may say: how often gateways write their status at least, and how long a Lease
 * lasts. Writers and readers go by the heartbeat, so every part of a cluster has the same in its environment, on all
 * nodes.
 */
import { HEARTBEAT_BOUNDS, HEARTBEAT_MS } from '../model/lanes/heartbeat.ts'
import { LANE_LEASE_MS, LEASE_BOUNDS } from '../model/lanes/lease-duration.ts'
import { parseDuration } from '../runtime/duration.ts'

export const HEARTBEAT = 'SEALANE_HEARTBEAT'
export const LEASE = 'SEALANE_LEASE'

/** Gives milliseconds. Throws InvalidValueError for what is neither empty nor a duration within the bounds. */
export function readHeartbeat(text = ''): number {
  return text === '' ? HEARTBEAT_MS : parseDuration(text, HEARTBEAT, HEARTBEAT_BOUNDS)
}

/** The same, of the Lease of a lane. */
export function readLease(text = ''): number {
  return text === '' ? LANE_LEASE_MS : parseDuration(text, LEASE, LEASE_BOUNDS)
}
