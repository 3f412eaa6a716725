/**
 * Plans what leave and uninstall remove from a cluster, which clusters lose their connections, and what the user is
 * told first. Pure.
 */
import { BROKER_CLAIM, DEFAULT_VALUES, objectName } from '../../../install/values/values.ts'

export interface RemovalFacts {
  /** `context "c1" of /home/ana/.kube/config` */
  readonly title: string
  /** `--context c1` */
  readonly flags: string
  /** A plain site without Kubernetes. */
  readonly site: boolean
  /** Undefined if there is no Membership, so that the broker need not be told. */
  readonly member: { readonly id: string; readonly clusterset: string; readonly leaving: boolean } | undefined
  /** The objects of a member's installation: `Namespace sealane-system`. */
  readonly parts: readonly string[]
  /** The ids of the other clusters. */
  readonly others: readonly string[]
  /** namespace/name of the exported Services of this cluster. */
  readonly exports: readonly string[]
  /** The number of Services of other clusters that are imported here. */
  readonly imports: number
  /** The Nodes that have objects of Sealane in their kernel. */
  readonly nodes: readonly string[]
  /** There is the ClusterTrafficPolicy of join --prefer-local. */
  readonly hasPolicy: boolean
  /** Undefined if there is no broker. */
  readonly broker: BrokerFacts | undefined
}

export interface BrokerFacts {
  /**
   * The members of the clusterset. Undefined if they are not needed, and if only the broker's volume and address are
   * left.
   */
  readonly members: readonly BrokerMember[] | { readonly unknown: string } | undefined
  /** The PersistentVolumeClaims with its data: its own, or those of the etcd installed with it. */
  readonly claims: readonly string[]
  /** The URL of an external etcd with its data. */
  readonly etcd?: string
}

export interface BrokerMember {
  readonly id: string
  readonly state: string
}

export interface RemovalOptions {
  readonly verb: 'leave' | 'uninstall'
  readonly crds: boolean
  readonly deleteData: boolean
  readonly evictMembers: boolean
  readonly force: boolean
}

export interface RemovalPlan {
  /** One line each, for people. Empty if there is nothing of Sealane to remove. */
  readonly lines: readonly string[]
  /** The members that are evicted before the broker is removed. */
  readonly evicts: readonly string[]
  /** The reason why these options are refused, and what to type instead. Undefined if they are accepted. */
  readonly refusal: { readonly message: string; readonly hint: string } | undefined
  /** The same command with --yes. */
  readonly command: string
}

/** The maximum number of names that are printed; the rest is counted. */
const MAX_NAMED = 5
const SERVICE = `Service ${DEFAULT_VALUES.broker.namespace}/${objectName('broker')}`

export function planRemoval(facts: RemovalFacts, chosen: RemovalOptions): RemovalPlan {
  const broker = chosen.verb === 'uninstall' ? facts.broker : undefined
  const others = otherMembers(facts, broker)
  const going = [
    ...memberLines(facts),
    ...(broker === undefined ? [] : brokerLines(facts, broker, others, chosen)),
    ...(chosen.crds ? ['the CRDs, except those of the Kubernetes project that are in use'] : []),
  ]
  const command = commandOf(facts, chosen, '--yes')
  if (going.length === 0) return { lines: [], evicts: [], refusal: undefined, command }
  const lines = [...going, ...stayLines(facts, broker, chosen)].map((line) => `  ${line}`)
  return {
    lines: [`this removes from ${facts.title}:`, ...lines, ...offer(facts, broker)],
    evicts: chosen.evictMembers && others !== undefined && !('unknown' in others) ? others.map(({ id }) => id) : [],
    refusal: refusalOf(facts, others, chosen),
    command,
  }
}

function stayLines({ site }: RemovalFacts, broker: BrokerFacts | undefined, chosen: RemovalOptions): string[] {
  const { crds, deleteData, verb } = chosen
  const { claims = [], etcd } = broker ?? {}
  const data = `kept: the broker's data and address (--delete-data), for the next sealane broker deploy: ${claimsText(claims)}, ${SERVICE}`
  return [
    ...(claims.length > 0 && !deleteData ? [data] : []),
    ...(etcd === undefined ? [] : [`kept: ${givenText(etcd)}`]),
    ...(etcd === undefined || deleteData ? [] : [`kept: the broker's address (--delete-data): ${SERVICE}`]),
    ...(crds || site ? [] : [`kept: the CRDs${verb === 'uninstall' ? ' (--crds)' : ''}`]),
  ]
}

/** The objects that store the broker's data: `PersistentVolumeClaim sealane-broker/sealane-broker-data`. */
export function claimsText(claims: readonly string[]): string {
  const names = claims.map((name) => `${DEFAULT_VALUES.broker.namespace}/${name}`)
  return `PersistentVolumeClaim${names.length === 1 ? '' : 's'} ${names.join(', ')}`
}

/** Sealane cannot remove this data, and once the broker is gone, the cluster does not say where it is. */
export function givenText(etcd: string): string {
  return `the broker's data in ${etcd}; give that etcd to the next sealane broker deploy too`
}

const DATA = 'members, addresses and the certificate authority'

type Others = readonly BrokerMember[] | { readonly unknown: string } | undefined

/** The members except this cluster, which leaves by itself before the broker is removed. */
function otherMembers({ member }: RemovalFacts, broker: BrokerFacts | undefined): Others {
  const members = broker?.members
  if (members === undefined || 'unknown' in members) return members
  return members.filter(({ id, state }) => id !== member?.id && (state === 'in contact' || state === 'silent'))
}

function memberLines({ member, parts, others, exports, imports, nodes, hasPolicy }: RemovalFacts): string[] {
  const cut = others.length === 0 ? 'no other cluster is known here' : `cut off from ${named(others)}`
  return [
    ...(member === undefined
      ? []
      : [`${member.id} leaves clusterset ${member.clusterset}${member.leaving ? ' (under way)' : ''}: ${cut}`]),
    ...(exports.length === 0
      ? []
      : [`other clusters can no longer call the services exported here: ${named(exports)}`]),
    ...(imports === 0 ? [] : [`pods here can no longer call ${count(imports, 'service')} of other clusters`]),
    ...(nodes.length === 0 ? [] : [`lanes, routes and rules in the kernel of ${named(nodes)}`]),
    ...(hasPolicy ? ['the ClusterTrafficPolicy of join --prefer-local'] : []),
    ...(parts.length === 0 ? [] : [`installed objects: ${named(parts)}; node labels, settings of cluster DNS`]),
  ]
}

function brokerLines(
  { title }: RemovalFacts,
  { members, claims }: BrokerFacts,
  others: Others,
  { deleteData, evictMembers }: RemovalOptions,
): string[] {
  return [
    ...(members === undefined ? [] : [`the broker of ${title}: no cluster can join, or receive changes of another`]),
    ...(others === undefined ? [] : [membersLine(others, evictMembers)]),
    ...(claims.length > 0 && deleteData ? [`the broker's data, permanently: ${claimsText(claims)} (${DATA})`] : []),
  ]
}

function membersLine(others: Exclude<Others, undefined>, evicts: boolean): string {
  if ('unknown' in others) return `its members cannot be listed: ${others.unknown}`
  if (others.length === 0) return 'no other cluster is a member'
  const members = named(others.map(({ id, state }) => `${id} (${state})`))
  return evicts ? `its members are evicted: ${members}` : `its members are cut off from it: ${members}`
}

/** Recommends a backup while the broker can still be reached. */
function offer({ flags }: RemovalFacts, broker: BrokerFacts | undefined): string[] {
  if (broker === undefined || !Array.isArray(broker.members)) return []
  if (isOnEtcd(broker)) return ['first take a snapshot of its etcd: etcdctl snapshot save (docs/reference.md)']
  return [`first take a backup: sealane broker backup ${flags} --output broker.backup`]
}

/** A backup by the broker works only if the data is on its own volume. */
function isOnEtcd({ claims, etcd }: BrokerFacts): boolean {
  return etcd !== undefined || claims.some((claim) => claim !== BROKER_CLAIM)
}

function refusalOf(facts: RemovalFacts, others: Others, chosen: RemovalOptions): RemovalPlan['refusal'] {
  if (others === undefined || chosen.evictMembers) return undefined
  const again = commandOf(facts, { ...chosen, evictMembers: true })
  if ('unknown' in others) {
    const message = `the members of the broker of ${facts.title} cannot be listed: ${others.unknown}`
    return { message, hint: `fix that, or remove the broker regardless of its members: ${again}` }
  }
  const present = others.filter(({ state }) => state === 'in contact').map(({ id }) => id)
  if (present.length === 0) return undefined
  const message = `the broker of ${facts.title} has members in contact: ${named(present)}`
  return { message, hint: `run sealane leave in each of them first, or evict them: ${again}` }
}

function commandOf({ flags }: RemovalFacts, chosen: RemovalOptions, ...more: readonly string[]): string {
  const { verb, crds, deleteData, evictMembers, force } = chosen
  const uninstall =
    verb === 'uninstall' ? { '--crds': crds, '--delete-data': deleteData, '--evict-members': evictMembers } : {}
  const given = Object.entries({ ...uninstall, '--force': force }).flatMap(([flag, is]) => (is ? [flag] : []))
  return ['sealane', verb, flags, ...given, ...more].join(' ')
}

function named(names: readonly string[]): string {
  const rest = names.length - MAX_NAMED
  return `${names.slice(0, MAX_NAMED).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}

function count(n: number, what: string): string {
  return n === 1 ? `one ${what}` : `${n} ${what}s`
}
