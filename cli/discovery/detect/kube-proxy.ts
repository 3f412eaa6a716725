/** How Services are carried: kube-proxy's mode, from its configuration or its command line. */
import { type Evidence, type Finding, type KubeProxy, type KubeProxyMode, networks } from '../evidence.ts'
import { daemonSet, flagOf, partPods } from '../snapshot/containers.ts'
import { prefixesIn } from '../snapshot/prefix-texts.ts'
import { documentIn, textAt } from '../snapshot/raw.ts'
import { type World, configText, pathOf } from '../snapshot/snapshot.ts'

const CONFIG_MAPS = ['kube-system/kube-proxy', 'kube-system/kube-proxy-config']

export function kubeProxy(world: World): Evidence[] {
  const workload = daemonSet(world, 'kube-proxy') ?? partPods(world, 'kube-proxy')[0]
  // Clusters without kube-proxy often keep its ConfigMap: it says nothing then.
  if (workload === undefined) return []
  const config = configText(world, CONFIG_MAPS, ['config.conf', 'config'])
  const document = documentIn(config?.text)
  const mode = modeOf(flagOf(workload, 'proxy-mode'))
  const found: Finding<KubeProxy> =
    mode !== undefined
      ? claim(mode, `${pathOf(workload)} --proxy-mode`)
      : config !== undefined && typeof document === 'object'
        ? claim(modeOf(textAt(document, 'mode')) ?? 'iptables', modeSource(config.where, textAt(document, 'mode')))
        : { ...claim('iptables', `${pathOf(workload)}: no mode named, iptables is the default`), confidence: 'likely' }
  const cidrs = prefixesIn([flagOf(workload, 'cluster-cidr') ?? textAt(document, 'clusterCIDR')])
  const where = flagOf(workload, 'cluster-cidr') === undefined ? `${config?.where ?? ''} clusterCIDR` : pathOf(workload)
  return [{ about: 'kubeProxy', ...found }, ...networks('podCIDRs', cidrs, 'likely', withFlag(where))]
}

function withFlag(where: string): string {
  return where.endsWith('clusterCIDR') ? where : `${where} --cluster-cidr`
}

function claim(mode: KubeProxyMode, how: string): Finding<KubeProxy> {
  return { value: { mode, insteadOf: undefined }, confidence: 'certain', how }
}

function modeSource(where: string, mode: string | undefined): string {
  return mode === undefined ? `${where} mode: empty, iptables is the default` : `${where} mode`
}

function modeOf(text: string | undefined): KubeProxyMode | undefined {
  return (['iptables', 'ipvs', 'nftables'] as const).find((mode) => mode === text)
}
