/** Detects Calico, installed by its operator or by manifest, with its IPPools. Calico for policy only is not a CNI. */
import { type Evidence, type Trait, cniClaim, networks } from '../evidence.ts'
import { type World, at, environmentOf, labelOf, listAt, nameOf, pathOf, textAt, textsAt } from '../snapshot.ts'
import { byFamily, prefixesIn } from '../prefix-texts.ts'
import { type ObservedPod, podAddresses } from '../pod-addresses.ts'
import { type Product, configText, findProduct } from '../product.ts'
import { containsAddress, parsePrefix } from '../../../model/addresses/addresses.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../../model/model.ts'

const V3 = 'projectcalico.org'

export function calico(world: World): Evidence[] {
  const product = findProduct(world, 'calico')
  const workload = product?.workload
  const installation = world.get('Installation', 'default')
  if (workload === undefined && installation === undefined) return []
  if (onlyPolicy(workload, installation)) return []
  const pools = poolsInUse(world)
  const ebpf = dataplane(world, workload, installation)
  const mode = modeOf(pools, workload, installation)
  const traits: Trait[] = [
    ...(world.list('IPPool', V3).length > 0 ? (['calico-api-v3'] as const) : []),
    ...(mode === 'bgp' ? (['calico-bgp'] as const) : []),
    ...(ebpf === undefined ? [] : (['calico-ebpf'] as const)),
  ]
  return [
    cniClaim('calico', {
      mode: ebpf === undefined ? mode : `${mode}, ${ebpf}`,
      how: workload === undefined ? 'Installation.operator.tigera.io default' : pathOf(workload),
      namespace: product?.namespace,
      bypassesNetfilter: ebpf !== undefined,
      podRanges: usesHostLocal(world, product, installation) ? 'node' : 'own',
      traits,
    }),
    ...podNetworks(pools, workload, installation),
  ]
}

/**
 * The pools from which pods have addresses. A pool that is disabled gives out no more, but counts while pods still have
 * some of it. Sealane's own pools for other clusters are left out.
 */
function poolsInUse(world: World): readonly unknown[] {
  const pods = podAddresses(world)
  const v3 = world.list('IPPool', V3)
  return (v3.length > 0 ? v3 : world.list('IPPool', 'crd.projectcalico.org')).filter((pool) => {
    const uses = textsAt(pool, 'spec', 'allowedUses')
    const ours = labelOf(pool, LABEL_APP_MANAGED_BY) === APP_MANAGED_BY_SEALANE
    if (ours || (uses.length > 0 && !uses.includes('Workload'))) return false
    return at(pool, 'spec', 'disabled') !== true || hasPods(prefixesIn([textAt(pool, 'spec', 'cidr')]), pods)
  })
}

function hasPods(cidrs: readonly string[], pods: readonly ObservedPod[]): boolean {
  const prefixes = cidrs.map((text) => parsePrefix(text))
  return pods.some(({ address }) => prefixes.some((prefix) => containsAddress(prefix, address)))
}

function podNetworks(pools: readonly unknown[], workload: unknown, installation: unknown): Evidence[] {
  const fromPools = byFamily(prefixesIn(pools.map((pool) => textAt(pool, 'spec', 'cidr'))))
  const names = pools.map(nameOf).slice(0, 3).join(', ')
  const planned = listAt(installation, 'spec', 'calicoNetwork', 'ipPools').map((pool) => textAt(pool, 'cidr'))
  const variable = environmentOf(workload, 'CALICO_IPV4POOL_CIDR')
  return [
    ...networks('podCIDRs', fromPools, 'certain', `IPPool ${names} spec.cidr`),
    ...networks('podCIDRs', byFamily(prefixesIn(planned)), 'likely', 'Installation default spec.calicoNetwork.ipPools'),
    ...networks('podCIDRs', prefixesIn([variable]), 'guess', `${pathOf(workload)} CALICO_IPV4POOL_CIDR`),
  ]
}

function onlyPolicy(workload: unknown, installation: unknown): boolean {
  const type = textAt(installation, 'spec', 'cni', 'type')
  return (type !== undefined && type !== 'Calico') || environmentOf(workload, 'CALICO_NETWORKING_BACKEND') === 'none'
}

function modeOf(pools: readonly unknown[], workload: unknown, installation: unknown): string {
  const has = (field: string): boolean =>
    pools.some((pool) => ['Always', 'CrossSubnet'].includes(textAt(pool, 'spec', field) ?? ''))
  if (has('vxlanMode')) return 'vxlan'
  if (has('ipipMode')) return 'ipip'
  if (pools.length > 0) return 'bgp'
  const planned = listAt(installation, 'spec', 'calicoNetwork', 'ipPools').map((pool) => textAt(pool, 'encapsulation'))
  const text = planned[0] ?? environmentOf(workload, 'CALICO_NETWORKING_BACKEND') ?? ''
  return /vxlan/i.test(text) ? 'vxlan' : /ipip/i.test(text) ? 'ipip' : 'bgp'
}

function dataplane(world: World, workload: unknown, installation: unknown): string | undefined {
  const planned = textAt(installation, 'spec', 'calicoNetwork', 'linuxDataplane')
  if (planned === 'VPP') return 'VPP'
  const felix = world.get('FelixConfiguration', 'default')
  const bpf =
    planned === 'BPF' ||
    at(felix, 'spec', 'bpfEnabled') === true ||
    environmentOf(workload, 'FELIX_BPFENABLED')?.toLowerCase() === 'true'
  return bpf ? 'eBPF' : undefined
}

function usesHostLocal(world: World, product: Product | undefined, installation: unknown): boolean {
  const config = configText(world, product, 'cni_network_config')?.text ?? ''
  return textAt(installation, 'spec', 'cni', 'ipam', 'type') === 'HostLocal' || /"type":\s*"host-local"/.test(config)
}
