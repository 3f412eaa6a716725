/** Objects as a server has them after a server-side apply. */
import type { ManifestObject } from '../../../install/values/manifest.ts'

/** Adds managedFields that say that this manager applied all of the object. */
export function appliedBy(manager: string, object: ManifestObject): ManifestObject {
  const { apiVersion, kind: _kind, ...content } = JSON.parse(JSON.stringify(object)) as ManifestObject
  const { name: _name, namespace: _namespace, managedFields: before = [], ...metadata } = content.metadata as Metadata
  const fieldsV1 = fieldsOf({ ...content, metadata })
  const entry = { manager, operation: 'Apply', apiVersion, fieldsType: 'FieldsV1', fieldsV1 }
  return {
    ...object,
    metadata: { ...object.metadata, managedFields: [...before, entry] } as ManifestObject['metadata'],
  }
}

type Metadata = ManifestObject['metadata'] & { readonly managedFields?: readonly object[] }

/** Lists are owned as a whole. */
function fieldsOf(value: object): object {
  const entries = Object.entries(value).map(([key, inner]: [string, unknown]) => {
    const isMap = typeof inner === 'object' && inner !== null && !Array.isArray(inner)
    return [`f:${key}`, isMap ? fieldsOf(inner) : {}] as const
  })
  return Object.fromEntries(entries)
}
