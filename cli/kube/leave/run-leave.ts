/** The command lines of leaving and of uninstalling: what would go is listed and asked about before anything does. */
import { SystemClock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { confirm } from '../../confirm.ts'
import type { CommandContext } from '../../context.ts'
import { type Discovery, discover } from '../../discovery/discover.ts'
import { readSnapshot } from '../../discovery/snapshot/read-snapshot.ts'
import { type KubeTarget, targetFlags } from '../../target.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { withAdmin } from '../access/with-admin.ts'
import { leaveCluster } from './leave-cluster.ts'
import type { LeaveClusterInit } from './leave-step.ts'
import {
  type RemovalFacts,
  type RemovalPlan,
  type RemovalOptions,
  claimsText,
  givenText,
  planRemoval,
} from './plan-removal.ts'
import { podBroker } from '../broker/pod-broker.ts'
import { podMembers } from '../broker/pod-members.ts'
import { readRemoval } from './read-removal.ts'
import { removeBroker, removeCrds } from './remove-installation.ts'
import { snapshotReader } from '../access/snapshot-reader.ts'

export type RunLeaveOptions = Pick<LeaveClusterInit, 'force' | 'timeoutMs'> & { readonly yes: boolean }

export interface RunUninstallOptions extends RunLeaveOptions {
  readonly crds: boolean
  readonly deleteData: boolean
  readonly evictMembers: boolean
}

/** One removal under way. */
interface Removal {
  readonly admin: ClusterAdmin
  readonly discovery: Discovery
  readonly facts: RemovalFacts
  readonly plan: RemovalPlan
  readonly init: LeaveClusterInit
}

export async function runLeaveKube(
  target: KubeTarget,
  options: RunLeaveOptions,
  context: CommandContext,
): Promise<void> {
  const chosen = { verb: 'leave', crds: false, deleteData: false, evictMembers: false, force: options.force } as const
  await withRemoval(target, { ...options, chosen }, context, async (removal) => {
    const { admin, discovery, facts, plan, init } = removal
    if (plan.lines.length === 0 && !options.force) throw nothingToLeave(facts)
    await agree(removal, options, context)
    const id = await leaveCluster(admin, discovery, init)
    context.output.answer(
      id === undefined ? 'Sealane is removed\n' : `${id} has left the clusterset; Sealane is removed\n`,
    )
  })
}

function nothingToLeave({ title, broker, flags }: RemovalFacts): UserError {
  const hint = broker === undefined ? {} : { hint: `a broker is there; it goes with: sealane uninstall ${flags}` }
  return new UserError(`${title}: Sealane is not installed there`, hint)
}

/** Everything of Sealane in one cluster, the broker as well. */
export async function runUninstall(
  target: KubeTarget,
  options: RunUninstallOptions,
  context: CommandContext,
): Promise<void> {
  const { crds, deleteData, evictMembers, force } = options
  const chosen = { verb: 'uninstall', crds, deleteData, evictMembers, force } as const
  await withRemoval(target, { ...options, chosen }, context, async (removal) => {
    const { admin, discovery, facts, init } = removal
    await agree(removal, options, context)
    // Nothing to leave is fine: what is left over goes all the same.
    const id = await leaveCluster(admin, discovery, init, { absentIsFine: true })
    await evict(removal)
    const broker = await removeBroker(admin, { deleteData }, init)
    const kept = crds ? await removeCrds(admin, init) : []
    const parts = [
      ...(id === undefined ? [] : [`${id} has left the clusterset`]),
      ...(broker ? ['the broker is gone'] : []),
      ...dataLeft(facts, deleteData),
    ]
    const said = parts.length === 0 ? ['Sealane was not there'] : parts
    context.output.answer(`${[...said, crdsLeft(crds, kept)].join('; ')}\n`)
  })
}

function dataLeft({ broker }: RemovalFacts, deleteData: boolean): readonly string[] {
  const { claims = [], etcd } = broker ?? {}
  const [stays, stay] = [`the broker's data stays in ${claimsText(claims)} (--delete-data)`, claims.length > 0]
  return [...(stay && !deleteData ? [stays] : []), ...(etcd === undefined ? [] : [`it stays: ${givenText(etcd)}`])]
}

async function withRemoval(
  target: KubeTarget,
  options: RunLeaveOptions & { readonly chosen: RemovalOptions },
  context: CommandContext,
  work: (removal: Removal) => Promise<void>,
): Promise<void> {
  const { force, timeoutMs, chosen } = options
  const { signal, output } = context
  const init = { force, timeoutMs, clock: new SystemClock(), signal, say: (text: string) => output.remark(text) }
  await withAdmin(target, init.clock, context, async ({ admin, api }) => {
    const discovery = discover(await readSnapshot(snapshotReader(api.dynamic), signal))
    const flags = targetFlags(target, admin.contextName)
    const facts = await readRemoval(admin, {
      flags,
      earlier: discovery.earlier,
      askBroker: chosen.verb === 'uninstall',
      signal,
    })
    await work({ admin, discovery, facts, plan: planRemoval(facts, chosen), init })
  })
}

/** Says what goes; throws UserError where that must not be, or nobody says yes. */
async function agree({ plan }: Removal, { yes }: RunLeaveOptions, context: CommandContext): Promise<void> {
  if (plan.lines.length === 0) return
  context.output.remark(`${plan.lines.join('\n')}\n`)
  if (plan.refusal !== undefined) throw new UserError(plan.refusal.message, { hint: plan.refusal.hint })
  await confirm({ what: 'Take it out', yes, command: plan.command }, context)
}

/** An evicted cluster receives it within a second (the broker looks that often), if its broker is still there. */
const HEARD_MS = 1500

async function evict({ admin, facts, plan, init }: Removal): Promise<void> {
  const { clock, signal, say } = init
  if (plan.evicts.length === 0) return
  const members = podMembers(podBroker(admin, facts.flags, signal))
  for (const cluster of plan.evicts) {
    await members.evict({ cluster, force: true })
    say(`  evicted   ${cluster}\n`)
  }
  await clock.sleep(HEARD_MS, signal)
}

function crdsLeft(asked: boolean, kept: readonly string[]): string {
  if (!asked) return 'the CRDs stay (--crds)'
  return kept.length === 0 ? 'the CRDs are gone' : `the CRDs are gone, but for ${kept.join(', ')}`
}
