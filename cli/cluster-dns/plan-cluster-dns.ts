/**
 * Plans how a cluster's own DNS is configured to forward clusterset.local, and how that is undone: one plan for each
 * flavour.
 */
import { InvalidAddressError, parseAddress } from '../../model/addresses/addresses.ts'
import { parseHostPort } from '../../runtime/runtime.ts'
import { titleOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import {
  type ClusterDnsFlavour,
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type DnsObject,
  type FoundDns,
  NO_CHANGE,
  configMapRef,
  joinPlans,
  problemPlan,
} from './dns-change.ts'
import { formatForwardBlock } from '../../model/cluster-dns/cluster-dns.ts'
import { findClusterCorefile } from './corefile-source.ts'
import { KNOWN_CACHE_MAPS } from './dns-caches.ts'
import { planCaches, planBlocksRemoval } from './plan-caches.ts'
import { isProblem, planCorefile, readable } from './plan-corefile.ts'
import { customImport, planCustomMap, planCustomMapRemoval } from './plan-custom-map.ts'
import { RKE2_CHART_CONFIG, planHelmValues, planHelmValuesRemoval } from './plan-helm-values.ts'
import { OPENSHIFT_DNS, planOpenshift, planOpenshiftRemoval } from './plan-openshift.ts'
import { KUBE_DNS_MAP, planStubDomains, planStubDomainsRemoval } from './plan-stub-domains.ts'

const workload = (kind: 'Deployment' | 'DaemonSet', name: string): ObjectRef => ({
  apiVersion: 'apps/v1',
  kind,
  namespace: 'kube-system',
  name,
})
const COREDNS = [configMapRef('coredns'), configMapRef('coredns-custom'), workload('Deployment', 'coredns')]
const RKE2 = [
  RKE2_CHART_CONFIG,
  configMapRef('rke2-coredns-rke2-coredns'),
  workload('Deployment', 'rke2-coredns-rke2-coredns'),
]
/** The usual objects of caches. Those of other names are found by lists (apply-cluster-dns.ts). */
const CACHES = [...KNOWN_CACHE_MAPS, ...KNOWN_CACHE_MAPS.map(({ name }) => workload('DaemonSet', name))]

const READS: Readonly<Record<ClusterDnsFlavour, readonly ObjectRef[]>> = {
  coredns: COREDNS,
  k3s: COREDNS,
  aks: COREDNS,
  rke2: RKE2,
  openshift: [OPENSHIFT_DNS],
  'kube-dns': [KUBE_DNS_MAP],
  'eks-auto-mode': [],
  'gke-cloud-dns': [],
  unknown: [],
}

/**
 * The objects that the plans of a flavour need. Further objects, such as a Deployment of another name, are ignored. A
 * CoreDNS that was found is read where it is, and comes first, so that it counts.
 */
export function clusterDnsReads(
  flavour: ClusterDnsFlavour,
  { server, maps = [] }: FoundDns = {},
): readonly ObjectRef[] {
  const own = READS[flavour] === COREDNS && server !== undefined ? serverReads(server) : READS[flavour]
  return [...own, ...CACHES, ...maps]
}

function serverReads(server: ObjectRef): readonly ObjectRef[] {
  return [server, configMapRef('coredns', server.namespace), configMapRef('coredns-custom', server.namespace)]
}

/**
 * The changes that make the cluster DNS forward names below `domain` to `forwardTo`. Empty if it already does. Problems
 * in the cluster are part of the plan and are never thrown. Throws InvalidAddressError for a bad `forwardTo`.
 */
export function planClusterDns(
  flavour: ClusterDnsFlavour,
  present: readonly DnsObject[],
  options: ClusterDnsOptions,
): ClusterDnsPlan {
  checkUpstream(options.forwardTo)
  const server = planServer(flavour, present, options)
  // Where another product answers these names, its answers must not change in the caches either.
  if (server.problems.some(({ kind }) => kind === 'conflict')) return server
  return joinPlans(server, planCaches(flavour, present, options))
}

function planServer(
  flavour: ClusterDnsFlavour,
  present: readonly DnsObject[],
  options: ClusterDnsOptions,
): ClusterDnsPlan {
  switch (flavour) {
    case 'coredns':
      // A Corefile that imports additions has an owner who would overwrite a change of it.
      return importsAdditions(present) ? planCustomMap(present, options) : planCorefile(present, options)
    case 'k3s':
    case 'aks':
      return planCustomMap(present, options)
    case 'rke2':
      return planHelmValues(present, options)
    case 'openshift':
      return planOpenshift(present, options)
    case 'kube-dns':
      return planStubDomains(present, options)
    case 'eks-auto-mode':
    case 'gke-cloud-dns':
    case 'unknown':
      return outOfReach(flavour, options)
  }
}

/**
 * The changes that undo planClusterDns(): every object is restored to the byte, unless another client has written it
 * since.
 */
export function planClusterDnsRemoval(flavour: ClusterDnsFlavour, present: readonly DnsObject[]): ClusterDnsPlan {
  // What can be removed is removed, also where something else cannot be read.
  const plans = [planServerRemoval(flavour, present), planCustomMapRemoval(present), planBlocksRemoval(present)]
  const changes = new Map(plans.flatMap((plan) => plan.changes).map((change) => [titleOf(change.object), change]))
  const [notes, problems] = [plans.flatMap((plan) => plan.notes), plans.flatMap((plan) => plan.problems)]
  return { changes: [...changes.values()], notes, problems }
}

function planServerRemoval(flavour: ClusterDnsFlavour, present: readonly DnsObject[]): ClusterDnsPlan {
  switch (flavour) {
    case 'rke2':
      return planHelmValuesRemoval(present)
    case 'openshift':
      return planOpenshiftRemoval(present)
    case 'kube-dns':
      return planStubDomainsRemoval(present)
    case 'coredns':
    case 'k3s':
    case 'aks':
    case 'eks-auto-mode':
    case 'gke-cloud-dns':
    case 'unknown':
      return NO_CHANGE
  }
}

function importsAdditions(present: readonly DnsObject[]): boolean {
  const source = findClusterCorefile(present)
  if (isProblem(source)) return false
  const pattern = readable(source, () => customImport(source.corefile))
  return typeof pattern === 'string'
}

function checkUpstream(forwardTo: string): void {
  try {
    parseAddress(forwardTo.includes(':') && !/^[^[]*:.*:/.test(forwardTo) ? parseHostPort(forwardTo).host : forwardTo)
  } catch {
    throw new InvalidAddressError('forwardTo', forwardTo, 'IP or IP:port, as in 10.43.0.99 or [fd00::99]:53')
  }
}

const NODE_BY_NODE =
  'For single workloads: dnsPolicy: None, and in dnsConfig the nameserver IP, the searches of the cluster and ndots:5; ' +
  'the dns component forwards all other names to its upstreams, so set dns.upstreams to the address of the cluster DNS.'

function outOfReach(
  flavour: 'eks-auto-mode' | 'gke-cloud-dns' | 'unknown',
  { domain, forwardTo }: ClusterDnsOptions,
): ClusterDnsPlan {
  const single = NODE_BY_NODE.replace('IP', forwardTo)
  switch (flavour) {
    case 'eks-auto-mode':
      return problemPlan({
        kind: 'outOfReach',
        message: 'EKS Auto Mode runs DNS on its nodes, where no settings can be made',
        advice: [
          `For the whole cluster: expose sealane-dns on an internal load balancer (Network Load Balancer, UDP and TCP 53), and create a Route 53 Resolver rule that forwards ${domain} to its addresses, associated with the cluster's VPC.`,
          single,
        ],
      })
    case 'gke-cloud-dns':
      return problemPlan({
        kind: 'outOfReach',
        message: 'this GKE cluster resolves names with Cloud DNS, which no object of the cluster configures',
        advice: [
          `For the whole cluster: expose sealane-dns on an internal load balancer (UDP and TCP 53), and create a Cloud DNS forwarding zone for ${domain} to its address, visible to the cluster's VPC. If GKE's own multi-cluster services are on, they answer ${domain} themselves: use only one of the two.`,
          single,
        ],
      })
    case 'unknown':
      return problemPlan({
        kind: 'outOfReach',
        message: 'Sealane does not know the DNS server of this cluster',
        advice: [
          `Make it forward ${domain} to ${forwardTo}. For a CoreDNS, add to its Corefile:\n${formatForwardBlock({ domain, forwardTo }, { ports: ['53'], binds: [] })}`,
          single,
        ],
      })
  }
}
