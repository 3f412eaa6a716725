/** The files that are mutated: those that decide by values alone, and the core that the rest depends on. */
import { globSync } from 'node:fs'

/** A part of the product; the same number of mutants is taken from each. */
export interface Room {
  readonly name: string
  /** Patterns of paths from the root. */
  readonly files: readonly string[]
}

/**
 * model/reasons is left out because it is only texts. Files that depend on a kernel, a socket or the file system are
 * left out too.
 */
export const ROOMS: readonly Room[] = [
  { name: 'model/addresses', files: ['model/addresses/*.ts'] },
  { name: 'model/services', files: ['model/{lanes,services}/*.ts'] },
  { name: 'model', files: ['model/*.ts'] },
  { name: 'protocol/replica', files: ['protocol/broker-addresses.ts', 'protocol/{replica,sessions}/*.ts'] },
  { name: 'protocol/codec', files: ['protocol/codec/**/*.ts', 'protocol/identity/token.ts', 'protocol/limits.ts'] },
  { name: 'broker/admission', files: ['broker/addresses/*.ts', 'broker/records/admission*.ts'] },
  {
    name: 'broker',
    files: [
      'broker/sessions/{authorization,exported-namespaces,filter,live-batches,snapshots,watch-slots}.ts',
      'broker/**/plan-*.ts',
      'broker/store/{log-state,packed-row,grouped-log}.ts',
      'broker/identity/{certificate-use,succession}.ts',
      'broker/members/{member-warnings,returning-members,settling}.ts',
      'broker/sessions/{member-changes,quota-pressure,rate-limited-writes}.ts',
      'broker/records/{quota,record-writes,status-records}.ts',
    ],
  },
  {
    name: 'agent/export',
    files: ['agent/export/*.ts', 'agent/publish/{plan-*,export-conditions}.ts'],
  },
  {
    name: 'agent/import',
    files: [
      'agent/import/*.ts',
      'agent/{cluster,link,mirror}/plan-*.ts',
      'agent/mirror/{mirror-loop,read-world}.ts',
      'agent/loop/shared-findings.ts',
    ],
  },
  {
    name: 'gateway/plans',
    files: ['gateway/**/plan-*.ts', 'gateway/{links,reach}/{check,choose}-*.ts'],
  },
  {
    name: 'gateway/state',
    files: [
      'gateway/health/{carrying-links,flap-damping,link-traffic}.ts',
      'gateway/{lanes/departure,lanes/lane-phase,reach/call-history,rotation/peer-rotation}.ts',
      'gateway/lease/{lane-role,lease-watch}.ts',
    ],
  },
  {
    name: 'routeagent/balance',
    files: [
      'routeagent/{access,balance}/{plan-*,access-chains,balance-elements,node-table}.ts',
      'routeagent/world/address-family.ts',
    ],
  },
  {
    name: 'routeagent/routes',
    files: ['routeagent/{probes,routes,world}/plan-*.ts', 'routeagent/world/node-world.ts'],
  },
  { name: 'dns', files: ['dns/{message,zone}/*.ts', 'dns/server/pipeline.ts'] },
  { name: 'explain', files: ['explain/{checks,packet-filter}/*.ts', 'explain/*.ts'] },
  {
    name: 'kernel',
    files: [
      'kernel/**/{plan-*,check-*,format-*,parse-*,*-codec,*-text}.ts',
      'kernel/apply/round.ts',
      'kernel/nft/apply-table.ts',
      'kernel/{drift,port-holders}.ts',
      'kernel/probing/{path-size,peer-health,probe-packet,probe-timing}.ts',
    ],
  },
  { name: 'reconcile', files: ['reconcile/*.ts', 'runtime/{component,flag-values}.ts'] },
  {
    name: 'kubeapi',
    files: [
      'kubeapi/driver/*.ts',
      'kubeapi/heard-gateways.ts',
      'kubeapi/lease/*.ts',
      'kubeapi/kube/{kind-objects,kinds}.ts',
      'kubeapi/kube/write/owned-fields.ts',
      'model/schemas/slim-objects.ts',
      'kubeapi/memory/memory-api.ts',
    ],
  },
]

/** The files of a room below `root`, sorted. A file of types alone has no mutants. */
export function filesOf(room: Room, root: string): string[] {
  return [...new Set(room.files.flatMap((pattern) => globSync(pattern, { cwd: root })))].sort()
}
