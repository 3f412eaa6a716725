/**
 * Determines from existing objects what a cluster lacks to run a broker with the given options, and which flags help.
 * So the command does not wait for something that never happens. Pure.
 */
import {
  BROKER_CLAIM,
  ETCD_MEMBERS,
  ETCD_VOLUME,
  type InstallValues,
  type ManifestObject,
  objectName,
} from '../../../install/values/values.ts'
import { parseQuantity } from '../../installation/installation.ts'

/** A condition that prevents the deployment. */
export interface Gap {
  /** `no load balancer: …` */
  readonly what: string
  /** Command-line words that avoid the problem. */
  readonly flags: readonly string[]
}

/**
 * A list is undefined if this user may not read it. Then nothing is known about its objects, and none of them counts as
 * missing.
 */
export interface BrokerWorld {
  readonly services: readonly ManifestObject[] | undefined
  readonly nodes: readonly ManifestObject[] | undefined
  /** The objects from which load balancers allocate addresses. */
  readonly addressPools: readonly ManifestObject[] | undefined
  readonly workloads: readonly ManifestObject[] | undefined
  readonly storageClasses: readonly ManifestObject[] | undefined
  readonly volumes: readonly ManifestObject[] | undefined
  readonly claim: ManifestObject | undefined
}

/** The `spec.providerID` schemes of clouds whose controller assigns addresses to Services. */
const CLOUDS: ReadonlySet<string> = new Set(
  'aws gce azure openstack digitalocean hcloud linode vultr scaleway exoscale ibm oci civo upcloud qcloud ovhcloud'.split(
    ' ',
  ),
)
const IMPLEMENTATIONS = /(metallb|kube-vip-cloud-provider|cloud-controller-manager|purelb|openelb|loxilb|svclb)/

/** A sign that Services of type LoadBalancer get addresses in this cluster. Undefined if there is none. */
export function loadBalancerSign(world: BrokerWorld): string | undefined {
  const { services, nodes, addressPools, workloads } = world
  if (services === undefined && nodes === undefined) return 'unknown'
  const served = services?.find((service) => hasIngress(service))
  if (served !== undefined) return `Service ${titleOf(served)} has an address`
  const cloud = nodes?.map(cloudOf).find((name) => name !== undefined)
  if (cloud !== undefined) return `the nodes belong to ${cloud}`
  const [pool] = addressPools ?? []
  if (pool !== undefined) return `${pool.kind} ${pool.metadata.name}`
  const own = workloads?.find(({ metadata }) => IMPLEMENTATIONS.test(metadata.name) || isMetalLb(metadata.namespace))
  return own === undefined ? undefined : `${own.kind} ${titleOf(own)}`
}

const isMetalLb = (namespace: string | undefined): boolean => namespace?.startsWith('metallb') === true

/** True if the object is a Service of type LoadBalancer with an address. */
export function hasIngress({ spec, status }: ManifestObject): boolean {
  const { type } = (spec ?? {}) as { readonly type?: string }
  const { loadBalancer } = (status ?? {}) as { readonly loadBalancer?: { readonly ingress?: readonly unknown[] } }
  return type === 'LoadBalancer' && (loadBalancer?.ingress ?? []).length > 0
}

function cloudOf({ spec, metadata }: ManifestObject): string | undefined {
  const { providerID = '' } = (spec ?? {}) as { readonly providerID?: string }
  const [scheme = ''] = providerID.split(':')
  // K3s has a load balancer of its own, unless its server was started with it disabled.
  if (scheme === 'k3s') {
    return metadata.annotations?.['k3s.io/node-args']?.includes('servicelb') === true ? undefined : 'k3s'
  }
  return CLOUDS.has(scheme) ? scheme : undefined
}

/** `asked` is true if a flag set the type of the Service. Then the command waits for an address in any case. */
export function addressGap(values: InstallValues, world: BrokerWorld, asked: boolean): Gap | undefined {
  const { service, advertise } = values.broker
  if (asked || service.type !== 'LoadBalancer' || advertise.length > 0) return undefined
  if (loadBalancerSign(world) !== undefined) return undefined
  return {
    what:
      'no load balancer: nothing in this cluster seems to assign addresses to Services of type LoadBalancer ' +
      '(--service-type LoadBalancer waits for one anyway)',
    flags: ['--service-type', 'NodePort'],
  }
}

interface VolumeSpec {
  readonly storageClassName?: string
  readonly accessModes?: readonly string[]
  readonly capacity?: { readonly storage?: string }
  readonly claimRef?: { readonly namespace?: string; readonly name?: string }
}

interface Claims {
  /** The name of the first claim. */
  readonly name: string
  readonly count: number
  readonly storage: InstallValues['broker']['storage']
}

/** The claims of the broker, or of the etcd that is installed with it. Undefined if there are none. */
export function claimsOf({ broker, etcd }: InstallValues): Claims | undefined {
  if (broker.store === 'sqlite') return { name: BROKER_CLAIM, count: 1, storage: broker.storage }
  if (!etcd.enabled) return undefined
  return { name: `${ETCD_VOLUME}-${objectName('etcd')}-0`, count: ETCD_MEMBERS, storage: etcd.storage }
}

/** Undefined if the claim is bound already, or if it can get a volume. */
export function volumeGap(values: InstallValues, world: BrokerWorld): Gap | undefined {
  const { storageClasses, volumes, claim } = world
  const claims = claimsOf(values)
  if (claims === undefined || isBound(claim) || storageClasses === undefined || volumes === undefined) return undefined
  const { storageClassName: wanted, size } = claims.storage
  const isFree = (volume: ManifestObject): boolean => fits(volume, claims, values.broker.namespace)
  if (volumes.filter(isFree).length >= claims.count) return undefined
  const names = storageClasses.map(({ metadata }) => metadata.name).sort()
  if (wanted === '' ? storageClasses.some(isDefault) : names.includes(wanted)) return undefined
  const lacks = wanted === '' ? 'the cluster has no default StorageClass' : `there is no StorageClass ${wanted}`
  const [none, are] =
    claims.count === 1 ? ['no PersistentVolume', 'is'] : [`fewer than ${claims.count} PersistentVolumes`, 'are']
  const free = `${none} ${wanted === '' ? 'without a class' : 'of that class'} with ${size} ${are} available`
  if (names.length === 0) {
    return {
      what: `no volume: ${lacks}, and ${free}; the cluster has no StorageClass: install one, or create such a volume`,
      flags: [],
    }
  }
  const [only = ''] = names
  const flags = ['--storage-class', names.length === 1 ? only : 'NAME']
  return { what: `no volume: ${lacks}, and ${free}; available classes: ${names.join(', ')}`, flags }
}

export function isBound(claim: ManifestObject | undefined): boolean {
  return (claim?.['status'] as { readonly phase?: string } | undefined)?.phase === 'Bound'
}

const DEFAULT_CLASS = [
  'storageclass.kubernetes.io/is-default-class',
  'storageclass.beta.kubernetes.io/is-default-class',
]

function isDefault({ metadata }: ManifestObject): boolean {
  return DEFAULT_CLASS.some((key) => metadata.annotations?.[key] === 'true')
}

function fits(volume: ManifestObject, { name, count, storage }: Claims, namespace: string): boolean {
  const { storageClassName = '', accessModes = [], capacity, claimRef } = (volume['spec'] ?? {}) as VolumeSpec
  const { phase } = (volume['status'] ?? {}) as { readonly phase?: string }
  if (phase !== 'Available' || storageClassName !== storage.storageClassName) return false
  const names = Array.from({ length: count }, (_, i) => name.replace(/-0$/, `-${i}`))
  if (claimRef !== undefined && (claimRef.namespace !== namespace || !names.includes(claimRef.name ?? ''))) {
    return false
  }
  const has = parseQuantity(capacity?.storage ?? '0')
  return accessModes.includes('ReadWriteOnce') && has >= parseQuantity(storage.size)
}

function titleOf({ metadata: { namespace = '', name } }: ManifestObject): string {
  return `${namespace}/${name}`
}
