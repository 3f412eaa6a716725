/** What a replica says of itself in the store, as JSON. A later release may say more, and an earlier one says less. */

export interface SessionValue {
  /** That have a stream open at it. */
  readonly members: readonly string[]
  /** Its host name; of a pod, the pod's name. */
  readonly host?: string
  readonly version?: string
}

/** What other replicas say is bounded by what a broker may have members. */
const MAX_VALUE_BYTES = 1024 * 1024
const MAX_TEXT = 253

export function formatSession(value: SessionValue): Buffer {
  return Buffer.from(JSON.stringify(value))
}

/** What cannot be read says nothing. Never throws. */
export function parseSession(value: Buffer): SessionValue {
  if (value.length > MAX_VALUE_BYTES) return { members: [] }
  try {
    const { members, host, version } = JSON.parse(value.toString()) as Readonly<Record<string, unknown>>
    return {
      members: Array.isArray(members) ? members.filter((one) => typeof one === 'string') : [],
      ...(isText(host) ? { host } : {}),
      ...(isText(version) ? { version } : {}),
    }
  } catch {
    return { members: [] }
  }
}

/** It is shown to people: a name and nothing else. */
function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= MAX_TEXT && /^[A-Za-z0-9._+-]+$/.test(value)
}
