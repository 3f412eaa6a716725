/**
 * Keeps what the Membership says about access: what this cluster exposes, as its configuration states it, and the
 * default of the clusterset, as the broker states it. What nobody states stays. A join writes a provisional default,
 * which the answer of a broker that states none replaces by `allow`, if all its replicas know defaults. A replica of an
 * earlier release states none either: then the provisional one stays, as does one that was stated.
 */
import type { Exposure } from '../../model/access/access.ts'
import type { ClusterApi, MembershipChanges } from '../../kubeapi/kubeapi.ts'
import { type AccessOfMember, MEMBERSHIP_NAME, type Membership } from '../../model/model.ts'
import { type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { AccessWord, StatedAccess } from '../link/link.ts'
import type { IdentityStore, KeptAccess } from '../../protocol/membership/membership.ts'
import { type LoopParts, loopDeps } from '../loop/loop.ts'

/** Sets these fields of the Membership. Throws ClusterApiError. */
export type ChangeMembership = (spec: AccessOfMember, signal: AbortSignal) => Promise<void>

export interface StatedAccessDeps extends LoopParts {
  readonly api: ClusterApi
  /** The default of the clusterset. Undefined if the broker never states one. */
  readonly stated: StatedAccess | undefined
  /** If undefined, the whole Membership is written, by `changes`. */
  readonly change: ChangeMembership | undefined
  readonly changes: MembershipChanges
}

/** Where what the Membership says is kept, in case it is lost. */
type AccessStore = Pick<IdentityStore, 'access' | 'keepAccess'>

export interface StatedAccessInit {
  /** What the configuration states. */
  readonly exposure?: Exposure | undefined
  readonly allowedNamespaces: readonly string[]
  readonly excludedNamespaces: readonly string[]
  readonly identity: AccessStore
  readonly loop: LoopInit
}

export class StatedAccessLoop {
  readonly #deps: StatedAccessDeps
  readonly #init: StatedAccessInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  #written: string | undefined
  /** Whether a broker has stated the default to this process, in case that cannot be kept. */
  #wasStated = false

  constructor(deps: StatedAccessDeps, init: StatedAccessInit) {
    this.#deps = deps
    this.#init = init
    this.#loop = new ReconcileLoop(loopDeps(deps, 'stated-access'), init.loop, (signal) => this.#round(signal))
    const poke = (): void => this.#loop.poke()
    this.#subscriptions.add(deps.api.cache('Membership').onChange(poke))
    if (deps.stated !== undefined) this.#subscriptions.add(deps.stated.onChange(poke))
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, stated, logger } = this.#deps
    const present = api.cache('Membership').get(MEMBERSHIP_NAME)
    if (present === undefined) return
    const { exposure, allowedNamespaces, excludedNamespaces, identity } = this.#init
    const kept = await identity.access()
    const accessDefault = stated === undefined ? 'none' : stated.get()
    const isKept = kept?.clusterset === present.spec.clusterset && kept.accessDefault !== undefined
    this.#wasStated ||= accessDefault === 'allow' || accessDefault === 'deny'
    const wasStated = isKept || this.#wasStated
    const wanted = { exposure, accessDefault, wasStated, allowedNamespaces, excludedNamespaces } as const
    const change = planStatedAccess(present, wanted)
    if (change !== undefined) {
      await this.#write(change, signal)
      // The CRD of an earlier release drops what it does not know, each time.
      const text = JSON.stringify(change)
      if (text !== this.#written)
        logger.info('the Membership has what the configuration and the broker state about access', { ...change })
      this.#written = text
    }
    const isUnstated = accessDefault === undefined || accessDefault === 'unknown'
    const isProvisional = present.spec.accessDefault !== undefined && isUnstated && !wasStated
    // What is kept counts as stated. Without it, a lost Membership is written as that of a new member.
    if (present.spec.phase === 'joined' && !isProvisional) await this.#keep({ ...present.spec, ...change }, kept)
  }

  async #keep({ clusterset, exposure, accessDefault }: Membership['spec'], known: KeptAccess | undefined) {
    const isSame =
      known?.clusterset === clusterset && known.exposure === exposure && known.accessDefault === accessDefault
    if (isSame) return
    await this.#init.identity.keepAccess({
      clusterset,
      ...(exposure === undefined ? {} : { exposure }),
      ...(accessDefault === undefined ? {} : { accessDefault }),
    })
  }

  async #write(spec: AccessOfMember, signal: AbortSignal): Promise<void> {
    const { change, changes } = this.#deps
    if (change !== undefined) await changes.inTurn(() => change(spec, signal), signal)
    else await changes.apply((latest) => ({ ...latest, spec: { ...latest.spec, ...spec } }), signal)
  }
}

interface StatedValues {
  readonly exposure: Exposure | undefined
  readonly accessDefault: AccessWord | undefined
  /** Whether a broker has ever stated the default to this member. */
  readonly wasStated: boolean
  readonly allowedNamespaces?: readonly string[]
  readonly excludedNamespaces?: readonly string[]
}

/** The fields to change. Undefined if there are none, and while the cluster leaves. */
export function planStatedAccess({ spec }: Membership, wanted: StatedValues): AccessOfMember | undefined {
  if (spec.phase !== 'joined') return undefined
  const { exposure } = wanted
  // An earlier replica states none, which must not open what a later one has closed.
  const byNone = wanted.wasStated ? (spec.accessDefault ?? 'allow') : 'allow'
  const word = wanted.accessDefault === 'unknown' ? undefined : wanted.accessDefault
  const accessDefault = word === 'none' ? byNone : word
  const change = {
    ...(exposure === undefined || exposure === spec.exposure ? {} : { exposure }),
    ...(accessDefault === undefined || accessDefault === spec.accessDefault ? {} : { accessDefault }),
    ...LISTS.reduce((lists, name) => ({ ...lists, ...changedList(name, spec[name], wanted[name]) }), {}),
  }
  return Object.keys(change).length === 0 ? undefined : change
}

const LISTS = ['allowedNamespaces', 'excludedNamespaces'] as const

/** An empty list and none are the same. The site file has no more than the Membership carries. */
function changedList(
  name: (typeof LISTS)[number],
  before: readonly string[] = [],
  wanted: readonly string[] = [],
): AccessOfMember {
  const list = [...new Set(wanted)].sort()
  return list.join() === before.join() ? {} : { [name]: list }
}
