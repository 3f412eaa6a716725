/**
 * Whether a file of the state can be used by nobody. A power loss can leave a file empty, filled with NUL octets, or cut
 * off: no hub takes such a content for news. Pure.
 */
import type { TreePath } from '../../kubeapi/remote/remote.ts'

const OBJECT = /^state\/objects\/([^/]+)\/[^/]+\/[^/@]+(@status|@user)?\.json$/

/**
 * Checks only what all releases write in files of a kind, so that hubs of different releases exchange what one of them
 * does not know. The user's files are never damaged: what is in them is up to the user.
 */
export function isDamaged(path: TreePath, content: Uint8Array): boolean {
  if (!path.startsWith('state/')) return false
  if (content.every((octet) => octet === 0)) return true
  if (!path.endsWith('.json')) return false
  const value = jsonOf(content)
  if (typeof value !== 'object' || value === null) return true
  const [isObject, kind, part] = OBJECT.exec(path) ?? []
  if (isObject === undefined) return false
  const { kind: stated, metadata, uid } = value as Readonly<Record<string, unknown>>
  return part === undefined ? stated !== kind || typeof metadata !== 'object' || metadata === null : !isText(uid)
}

function jsonOf(content: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(content).toString())
  } catch {
    return undefined
  }
}

function isText(value: unknown): boolean {
  return typeof value === 'string'
}
