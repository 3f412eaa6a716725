/** The results of exports: the standard's rules as a table. The first cluster exports first, the second after it. */
import type { Json } from '../support/kube-request.ts'
import { helloService } from '../support/callers.ts'

export interface ExportCase {
  /** The case of the published suite that checks the same, by its number in docs/mcs.md; '' if there is none. */
  readonly id: string
  readonly name: string
  readonly says: string
  /** The spec of the Service and of its export, in the first cluster and in the second. */
  readonly first: Exported
  readonly second?: Exported
  /** The importText() of the import, the same in both clusters. */
  readonly import: string
  /** The exportText() of every export. */
  readonly exports: string
  /** The message of Valid in the first cluster. */
  readonly message?: RegExp
  /** Labels and annotations of the import, in addition to our own. */
  readonly marks?: Json
}

export interface Exported {
  /** Default: there is no Service. */
  readonly service?: Json
  readonly export?: Json
}

const GOOD = 'Valid Ready'
const PORTS = 'tcp:42/TCP,udp:42/UDP'
const PLAIN = `ClusterSetIP IPv4 ips=1 ${PORTS} Cluster`
const ONE = `${PLAIN} from c1`
const BOTH = `${PLAIN} from c1,c2`

const AFFINITY = { sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 10 } } }

function port(name: string, number: number, protocol = 'TCP'): Json {
  return { name, port: number, protocol, targetPort: 42 }
}

function service(name: string, spec: Json = {}): Exported {
  const body = helloService(name, spec)
  return {
    service: { ...body, metadata: { name, labels: { 'dummy-svc': 'x' }, annotations: { 'dummy-svc': 'x' } } },
  }
}

function marked(name: string, value: string): Exported {
  return {
    ...service(name),
    export: { exportedLabels: { [`l-${value}`]: value }, exportedAnnotations: { [`a-${value}`]: value } },
  }
}

/** A spec with one list of ports. */
function ports(...list: readonly Json[]): Json {
  return { ports: list }
}

const HEADLESS = { clusterIP: 'None' }

export const EXPORT_CASES: readonly ExportCase[] = [
  {
    id: 'T02',
    name: 'labels',
    says: 'labels and annotations come from the export, not from the Service',
    first: marked('labels', 'one'),
    import: ONE,
    exports: GOOD,
    marks: { labels: { 'l-one': 'one' }, annotations: { 'a-one': 'one' } },
  },
  {
    id: 'T03',
    name: 'other-labels',
    says: 'of two exports with different ones, the older gives them all',
    first: marked('other-labels', 'one'),
    second: marked('other-labels', 'two'),
    import: BOTH,
    exports: `${GOOD} Conflict=AnnotationsConflict,LabelsConflict`,
    marks: { labels: { 'l-one': 'one' }, annotations: { 'a-one': 'one' } },
  },
  {
    id: 'T04, T06, T08, T09',
    name: 'plain',
    says: 'a clusterset IP in each cluster, with the ports and policy of the Service',
    first: service('plain'),
    import: ONE,
    exports: GOOD,
  },
  {
    id: 'T05',
    name: 'affinity',
    says: 'the session affinity of the Service',
    first: service('affinity', AFFINITY),
    import: `ClusterSetIP IPv4 ips=1 ${PORTS} ClientIP=10 Cluster from c1`,
    exports: GOOD,
  },
  {
    id: '',
    name: 'other-affinity',
    says: 'of two affinities the older one',
    first: service('other-affinity', AFFINITY),
    second: service('other-affinity'),
    import: `ClusterSetIP IPv4 ips=1 ${PORTS} ClientIP=10 Cluster from c1,c2`,
    exports: `${GOOD} Conflict=SessionAffinityConflict`,
  },
  {
    id: 'T06',
    name: 'local-policy',
    says: 'the internal traffic policy of the Service',
    first: service('local-policy', { internalTrafficPolicy: 'Local' }),
    import: `ClusterSetIP IPv4 ips=1 ${PORTS} Local from c1`,
    exports: GOOD,
  },
  {
    id: 'T07',
    name: 'distribution',
    says: 'the traffic distribution of the Service',
    first: service('distribution', { trafficDistribution: 'PreferClose' }),
    import: `${PLAIN} PreferClose from c1`,
    exports: GOOD,
  },
  {
    id: 'T10',
    name: 'union',
    says: 'the union of the ports, and a conflict',
    first: service('union'),
    second: service('union', ports(port('tcp', 42), port('stcp', 142, 'SCTP'))),
    import: `ClusterSetIP IPv4 ips=1 stcp:142/SCTP,${PORTS} Cluster from c1,c2`,
    exports: `${GOOD} Conflict=PortConflict`,
  },
  {
    id: 'T11',
    name: 'numbers',
    says: 'of two numbers of one port the older export decides',
    first: service('numbers'),
    second: service('numbers', ports(port('tcp', 43))),
    import: BOTH,
    exports: `${GOOD} Conflict=PortConflict`,
  },
  {
    id: 'T12, T13',
    name: 'headless',
    says: 'a headless service has no clusterset IP',
    first: service('headless', HEADLESS),
    import: `Headless IPv4 ips=0 ${PORTS} Cluster from c1`,
    exports: GOOD,
  },
  {
    id: 'T14',
    name: 'external',
    says: 'an ExternalName is refused and never imported',
    first: service('external', { type: 'ExternalName', externalName: 'example.org', selector: null, ports: [] }),
    import: 'none',
    exports: '!Valid=InvalidServiceType !Ready=Pending',
  },
  {
    id: 'T15',
    name: 'one-headless',
    says: 'of headless and not, the older export decides',
    first: service('one-headless'),
    second: service('one-headless', HEADLESS),
    import: BOTH,
    exports: `${GOOD} Conflict=TypeConflict`,
  },
  {
    id: '',
    name: 'node-port',
    says: 'a NodePort has a clusterset IP',
    first: service('node-port', { type: 'NodePort' }),
    import: ONE,
    exports: GOOD,
  },
  {
    id: '',
    name: 'load-balancer',
    says: 'a LoadBalancer too, without waiting for its address',
    first: service('load-balancer', { type: 'LoadBalancer' }),
    import: ONE,
    exports: GOOD,
  },
  {
    id: '',
    name: 'no-service',
    says: 'an export before its Service waits',
    first: {},
    import: 'none',
    exports: '!Valid=NoService !Ready=Pending',
  },
  {
    id: '',
    name: 'x'.repeat(70),
    says: 'no Service can have a name of 70 letters, but an export can',
    first: {},
    import: 'none',
    exports: '!Valid=NoService !Ready=Pending',
    message: /^Service kinds\/x{70} cannot have a DNS name: "x{70}": /,
  },
]
