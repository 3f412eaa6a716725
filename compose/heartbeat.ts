/**
 * How often the gateways of a site write their status at least. The gateways write by it, and all others find by it who
 * has stopped: so every part of a site has the same in its environment, on all nodes.
 */
import { HEARTBEAT_BOUNDS, HEARTBEAT_MS } from '../model/lanes/heartbeat.ts'
import { parseDuration } from '../runtime/duration.ts'

export const HEARTBEAT = 'SEALANE_HEARTBEAT'

/** Gives milliseconds. Throws InvalidValueError for what is neither empty nor a duration within the bounds. */
export function readHeartbeat(text = ''): number {
  return text === '' ? HEARTBEAT_MS : parseDuration(text, HEARTBEAT, HEARTBEAT_BOUNDS)
}
