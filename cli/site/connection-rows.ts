/** Connections as `sealane show connections` shows them: with how old the word of their gateway is. Pure. */
import { HEARTBEAT_OLD_MS, heartbeatAgeMs, isTakenAsSilent } from '../../model/lanes/heartbeat.ts'
import type { ConnectionState, ConnectionStatus, Gateway } from '../../model/objects.ts'

export interface ConnectionRow extends Omit<ConnectionStatus, 'state'> {
  /** The local gateway that keeps the connection. */
  readonly node: string
  /** unknown: its gateway has stopped to report. */
  readonly state: ConnectionState | 'unknown'
  /** Since the gateway reported, by the clock of this machine; absent where its release does not say when. */
  readonly heardSecondsAgo?: number
}

/**
 * Takes milliseconds since 1970 by this machine's clock, which may differ from the gateway's. So a word is old when it
 * is far too old, or when the agent, which watches, has found that no other follows.
 */
export function connectionRows(gateways: readonly Gateway[], nowMs: number): readonly ConnectionRow[] {
  return gateways.flatMap((gateway) => {
    const ageMs = heartbeatAgeMs(gateway, nowMs)
    const isOld = isTakenAsSilent(gateway) || (ageMs ?? 0) >= HEARTBEAT_OLD_MS
    const heard = ageMs === undefined ? {} : { heardSecondsAgo: Math.floor(ageMs / 1000) }
    return (gateway.status?.connections ?? []).map((connection): ConnectionRow => {
      const row = { node: gateway.metadata.name, ...connection, ...heard }
      if (!isOld) return row
      const last = ageMs === undefined ? '' : `, last heard ${agoText(Math.floor(ageMs / 1000))}`
      return { ...row, state: 'unknown', message: `was ${connection.state}${last}` }
    })
  })
}

/** `3s ago`, `4m12s ago`, `3h5m ago`. */
export function agoText(seconds: number): string {
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)]
  if (hours > 0) return `${hours}h${minutes % 60}m ago`
  return minutes > 0 ? `${minutes}m${seconds % 60}s ago` : `${seconds}s ago`
}
