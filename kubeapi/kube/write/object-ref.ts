/** Which object is meant, whatever its kind. */

export interface ObjectType {
  readonly apiVersion: string
  readonly kind: string
}

export interface ObjectRef extends ObjectType {
  readonly name: string
  /** Absent: the kind has none. */
  readonly namespace?: string | undefined
}

interface Named extends ObjectType {
  readonly metadata: { readonly name: string; readonly namespace?: string | undefined }
}

export function refOf({ apiVersion, kind, metadata: { name, namespace } }: Named): ObjectRef {
  return { apiVersion, kind, name, ...(namespace === undefined ? {} : { namespace }) }
}

/** `Deployment sealane-system/sealane-agent` */
export function titleOf({ kind, namespace, name }: Omit<ObjectRef, 'apiVersion'>): string {
  return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}
