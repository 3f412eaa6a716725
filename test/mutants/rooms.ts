/** Which files are mutated: those that decide by values alone, and the core that the rest stands on. */
import { globSync } from 'node:fs'

/** A part of the product that mutants are taken from, as many as from the others. */
export interface Room {
  readonly name: string
  /** Patterns of paths from the root. */
  readonly files: readonly string[]
}

/** model/reasons is left out: it is texts. So is what only a kernel, a socket or a file answers. */
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
      'broker/watch/*.ts',
      'broker/**/plan-*.ts',
      'broker/store/{log-state,packed-row,grouped-log}.ts',
      'broker/identity/{certificate-use,succession}.ts',
      'broker/members/{member-warnings,returning-members,settling}.ts',
      'broker/publish/{member-changes,quota-pressure,rate-limited-writes}.ts',
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
      'agent/mirror/{import-statuses,read-world}.ts',
      'agent/loop/shared-findings.ts',
    ],
  },
  {
    name: 'gateway/plans',
    files: ['gateway/**/plan-*.ts', 'gateway/{reach,remotes}/{choose,check,observed,changed,pod}-*.ts'],
  },
  {
    name: 'gateway/state',
    files: [
      'gateway/health/{busy-links,carrying-links,flap-damping,others-sizes,transition-counts}.ts',
      'gateway/reach/{handshake-retries,lane-doubt,link-port,roamed-peers}.ts',
      'gateway/rotation/{asked-rotation,following,renewal}.ts',
      'gateway/tenure/{lane-lease-text,lapsed-holder,lease-watch,turn}.ts',
    ],
  },
  {
    name: 'routeagent/balance',
    files: ['routeagent/balance/{plan-*,balance-elements,check-table,ipv4-number,ipv6-groups,local-backends}.ts'],
  },
  { name: 'routeagent/routes', files: ['routeagent/routes/{plan-*,own-ranges}.ts', 'routeagent/world/node-world.ts'] },
  { name: 'dns', files: ['dns/zone/*.ts', 'dns/{wire,pipeline}.ts', 'dns/server/{query,write-response}.ts'] },
  { name: 'explain', files: ['explain/{between,checks,firewall,overview,policies}/**/*.ts', 'explain/*.ts'] },
  {
    name: 'kernel',
    files: [
      'kernel/**/{plan-*,check-*,format-*,parse-*,*-codec}.ts',
      'kernel/apply/round.ts',
      'kernel/{drift,port-holders}.ts',
      'kernel/probing/{pace,path-size,peer-health,probe-packet,probe-stats,size-search}.ts',
    ],
  },
  { name: 'reconcile', files: ['reconcile/*.ts', 'runtime/{component,flag-values}.ts'] },
  {
    name: 'kubeapi',
    files: [
      'kubeapi/driver/*.ts',
      'kubeapi/heard-gateways.ts',
      'kubeapi/kube/{kind-objects,kinds}.ts',
      'kubeapi/kube/write/owned-fields.ts',
      'model/schemas/slim-objects.ts',
      'kubeapi/memory/memory-api.ts',
    ],
  },
]

/** The files of a room below `root`, sorted. A file that is only types gives no mutant. */
export function filesOf(room: Room, root: string): string[] {
  return [...new Set(room.files.flatMap((pattern) => globSync(pattern, { cwd: root })))].sort()
}
