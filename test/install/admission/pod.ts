/** The fields of a pod that admission rules look at, as the API server has them after its own defaults. */

export interface SeLinuxOptions {
  readonly user?: string
  readonly role?: string
  readonly type?: string
  readonly level?: string
}

interface Profile {
  readonly type?: string
  readonly localhostProfile?: string
}

/** Fields that a pod and each of its containers may have. */
interface CommonContext {
  readonly runAsUser?: number
  readonly runAsGroup?: number
  readonly runAsNonRoot?: boolean
  readonly seLinuxOptions?: SeLinuxOptions
  readonly seccompProfile?: Profile
  readonly appArmorProfile?: Profile
  readonly windowsOptions?: { readonly hostProcess?: boolean }
}

export interface PodContext extends CommonContext {
  readonly fsGroup?: number
  readonly supplementalGroups?: readonly number[]
  readonly sysctls?: readonly { readonly name: string }[]
}

export interface ContainerContext extends CommonContext {
  readonly privileged?: boolean
  readonly allowPrivilegeEscalation?: boolean
  readonly readOnlyRootFilesystem?: boolean
  readonly procMount?: string
  readonly capabilities?: { readonly add?: readonly string[]; readonly drop?: readonly string[] }
}

interface Handler {
  readonly httpGet?: { readonly host?: string }
  readonly tcpSocket?: { readonly host?: string }
}

export interface Container {
  readonly name: string
  readonly securityContext?: ContainerContext
  readonly ports?: readonly { readonly containerPort: number; readonly hostPort?: number }[]
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[]
  readonly startupProbe?: Handler
  readonly livenessProbe?: Handler
  readonly readinessProbe?: Handler
  readonly lifecycle?: { readonly postStart?: Handler; readonly preStop?: Handler }
}

export interface Volume {
  readonly name: string
  readonly hostPath?: { readonly path: string; readonly type?: string }
  readonly [source: string]: unknown
}

export interface Pod {
  readonly metadata: {
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
  }
  readonly spec: {
    readonly serviceAccountName?: string
    readonly automountServiceAccountToken?: boolean
    readonly hostNetwork?: boolean
    readonly hostPID?: boolean
    readonly hostIPC?: boolean
    readonly securityContext?: PodContext
    readonly containers: readonly Container[]
    readonly initContainers?: readonly Container[]
    readonly ephemeralContainers?: readonly Container[]
    readonly volumes?: readonly Volume[]
  }
}

export function containersOf({ spec }: Pod): readonly Container[] {
  return [...spec.containers, ...(spec.initContainers ?? []), ...(spec.ephemeralContainers ?? [])]
}

/** The kind of a volume: `hostPath`, `emptyDir`. */
export function kindOf({ name: _name, ...source }: Volume): string {
  return Object.keys(source)[0] ?? 'emptyDir'
}

/**
 * The pod that admission plugins get: ports of a container on the network of the node are ports of the node, and the
 * token of the account is a projected volume.
 */
export function defaulted(pod: Pod): Pod {
  const { spec } = pod
  const token: Volume = { name: 'kube-api-access', projected: { sources: [] } }
  return {
    ...pod,
    spec: {
      ...spec,
      containers: spec.containers.map((container) => ({
        ...container,
        ports: (container.ports ?? []).map((port) =>
          spec.hostNetwork === true ? { ...port, hostPort: port.containerPort } : port,
        ),
      })),
      volumes: [...(spec.volumes ?? []), ...(spec.automountServiceAccountToken === false ? [] : [token])],
    },
  }
}
