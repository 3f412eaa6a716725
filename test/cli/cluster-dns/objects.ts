/** Objects of clusters as their API servers return them. */
import type { DnsObject } from '../../../cli/cluster-dns/dns-change.ts'

type Maps = Readonly<Record<string, string>>

export function configMap(name: string, data: Readonly<Record<string, string>>, labels: Maps = {}): DnsObject {
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, namespace: 'kube-system', uid: `uid-${name}`, resourceVersion: '41', labels },
    data,
  }
}

interface WorkloadInit {
  readonly args?: readonly string[]
  readonly items?: readonly object[]
}

/** Returns a workload that mounts a ConfigMap at /etc/coredns and reads one file of it. */
export function coreDnsWorkload(
  name: string,
  map: string,
  { args = ['-conf', '/etc/coredns/Corefile'], items }: WorkloadInit = {},
): DnsObject {
  const configMap = { name: map, ...(items === undefined ? {} : { items }) }
  const container = {
    name: 'coredns',
    args,
    volumeMounts: [{ name: 'config-volume', mountPath: '/etc/coredns', readOnly: true }],
  }
  return {
    apiVersion: 'apps/v1',
    kind: /node-?local/.test(name) ? 'DaemonSet' : 'Deployment',
    metadata: { name, namespace: 'kube-system' },
    spec: { template: { spec: { containers: [container], volumes: [{ name: 'config-volume', configMap }] } } },
  }
}

export function chartConfig(valuesContent: string): DnsObject {
  return {
    apiVersion: 'helm.cattle.io/v1',
    kind: 'HelmChartConfig',
    metadata: { name: 'rke2-coredns', namespace: 'kube-system' },
    spec: { valuesContent },
  }
}

export function openshiftDns(spec: Readonly<Record<string, unknown>>): DnsObject {
  return { apiVersion: 'operator.openshift.io/v1', kind: 'DNS', metadata: { name: 'default' }, spec }
}
