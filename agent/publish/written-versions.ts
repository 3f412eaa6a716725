/** What this process has written into `status.inForce` of policies, and what the API has kept of it. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import type { AnyAccessPolicy, KeptVersion } from '../../model/access/access.ts'
import { findCondition, objectKeyText } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { AnyTrafficPolicy } from '../../model/services/services.ts'
import { canonicalJson } from '../../protocol/codec/codec.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { LostVersions } from './plan-kept-versions.ts'

type AnyPolicy = AnyAccessPolicy | AnyTrafficPolicy

/** A cache shows what was written within this time, unless the API has dropped it. */
const CACHE_LAG_MS = 30_000
/**
 * One of the versions that an API has dropped is written again this often, and one that it has changed if its policy is
 * valid: the CRD may have been upgraded.
 */
const WRITE_AGAIN_MS = 600_000
/** Most policies that one round reads again. */
const MAX_READ = 16
/** Most policies that wait for it. A CRD that lacks a field lacks it for all, so some of ten thousand are enough. */
const MAX_UNREAD = 256

export interface ReadAgainDeps {
  readonly api: Pick<ClusterApi, 'read'>
  readonly logger: Pick<Logger, 'warn' | 'debug'>
}

export class WrittenVersions {
  /** By objectKeyText(). The API may have dropped it. */
  readonly known = new Map<string, KeptVersion>()
  /** When each was written, the oldest first. Monotonic. */
  readonly #at = new Map<string, number>()
  #triedAt = 0
  /** What was written and is not read again yet. */
  readonly #unread = new Map<string, AnyPolicy>()
  /** What was read again and is stored as it was written. */
  readonly #equal = new Map<string, KeptVersion>()
  readonly #lostKinds = new Set<string>()
  readonly #changed = new Map<string, KeptVersion>()
  readonly #saidChanged = new Set<string>()
  #changedTriedAt = 0

  get lost(): LostVersions {
    return { kinds: this.#lostKinds, changed: this.#changed }
  }

  note(written: readonly AnyPolicy[], nowMs: number): void {
    for (const policy of written) {
      const [key, kept] = [objectKeyText(policy), policy.status?.inForce]
      this.#forget(key)
      this.#unread.delete(key)
      if (kept === undefined) continue
      this.known.set(key, kept)
      this.#at.set(key, nowMs)
      if (this.#unread.size < MAX_UNREAD && !isSameVersion(this.#equal.get(key), kept)) this.#unread.set(key, policy)
    }
  }

  /** Takes all policies that exist. Forgets what is to be written again if the API does not have it. */
  look(policies: readonly AnyPolicy[], nowMs: number): void {
    const present = new Map(policies.map((policy) => [objectKeyText(policy), policy]))
    const keeping = new Set(policies.flatMap(({ kind, status }) => (status?.inForce === undefined ? [] : [kind])))
    for (const key of this.#unread.keys()) if (!present.has(key)) this.#unread.delete(key)
    for (const [key, version] of this.#equal)
      if (!isSameVersion(present.get(key)?.status?.inForce, version)) this.#equal.delete(key)
    for (const key of this.#changed.keys()) if (!present.has(key)) this.#changed.delete(key)
    if (nowMs - this.#changedTriedAt >= WRITE_AGAIN_MS) {
      this.#changedTriedAt = nowMs
      // Of a policy that is not valid, parts of the cluster would follow what the API makes of the version.
      const again = [...this.#changed.keys()].find((key) => isValid(present.get(key)))
      if (again !== undefined) this.#changed.delete(again)
    }
    for (const [key, at] of this.#at) {
      const policy = present.get(key)
      // The API has the field if one policy of the kind has it, so what another lacks was removed or refused.
      const isKept = policy !== undefined && keeping.has(policy.kind) && nowMs - at >= CACHE_LAG_MS
      if (policy === undefined || policy.status?.inForce !== undefined || isKept) this.#forget(key)
    }
    const [oldest] = this.#at
    if (oldest === undefined || nowMs - Math.max(oldest[1], this.#triedAt) < WRITE_AGAIN_MS) return
    this.#triedAt = nowMs
    this.#forget(oldest[0])
  }

  /**
   * Reads some of what was written again, from storage: an API whose CRD lacks a field drops it and reports no failure.
   * Each kind of loss is logged once. Returns whether the conditions may differ, or more is to be read. Throws on abort.
   */
  async readAgain({ api, logger }: ReadAgainDeps, signal: AbortSignal): Promise<boolean> {
    let isNews = false
    for (const [key, written] of [...this.#unread].slice(0, MAX_READ)) {
      const { kind, metadata } = written
      let found: AnyPolicy | undefined
      try {
        found = await api.read<AnyPolicy['kind']>(kind, metadata.name, metadata.namespace, signal)
      } catch (error) {
        signal.throwIfAborted()
        // The round at the next interval reads it.
        logger.debug('a policy cannot be read again', { name: key, why: messageOf(error) })
        return isNews
      }
      this.#unread.delete(key)
      if (found !== undefined && isStatusOf(found, written))
        isNews = this.#compare(key, written, found, logger) || isNews
    }
    return isNews || this.#unread.size > 0
  }

  #compare(key: string, { kind, status }: AnyPolicy, found: AnyPolicy, logger: Pick<Logger, 'warn'>): boolean {
    const [written, stored] = [status?.inForce, found.status?.inForce]
    if (written === undefined) return false
    const reason = 'PolicyVersionNotKept' satisfies ReasonCode
    if (stored === undefined) {
      if (this.#lostKinds.has(kind)) return false
      this.#lostKinds.add(kind)
      logger.warn('the CRD of a policy has no status.inForce: parts that start do not know what was valid', {
        ...{ reason, kind, name: key },
      })
      return true
    }
    const isBack = this.#lostKinds.delete(kind)
    if (canonicalJson(stored) === canonicalJson(written)) {
      this.#equal.set(key, written)
      return this.#changed.delete(key) || isBack
    }
    if (!this.#saidChanged.has(kind)) {
      this.#saidChanged.add(kind)
      logger.warn('the CRD of a policy lacks fields of status.inForce: the version that was valid is not kept', {
        ...{ reason, kind, name: key },
      })
    }
    this.#changed.set(key, written)
    return true
  }

  #forget(key: string): void {
    this.known.delete(key)
    this.#at.delete(key)
  }
}

function isSameVersion(one: KeptVersion | undefined, other: KeptVersion): boolean {
  return one?.uid === other.uid && one.generation === other.generation
}

/** By its condition, as this agent has written it. */
function isValid(policy: AnyPolicy | undefined): boolean {
  const condition = findCondition(policy?.status?.conditions, 'Valid')
  return condition?.status === 'True' && condition.observedGeneration === policy?.metadata.generation
}

/** Whether what is stored is the status that was written: another may have replaced it since, or refused the write. */
function isStatusOf(found: AnyPolicy, written: AnyPolicy): boolean {
  const [is, was] = [found, written].map(({ status }) => findCondition(status?.conditions, 'Valid'))
  if (is === undefined || was === undefined || found.metadata.uid !== written.metadata.uid) return false
  return is.observedGeneration === was.observedGeneration && is.reason === was.reason
}
