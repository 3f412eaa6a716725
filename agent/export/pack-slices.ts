/**
 * How a Service's EndpointSlices are divided for publishing. A small service is one slice per family and set of ports,
 * however its own cluster divides it; a large one keeps the division that it has, so that one pod changes one slice.
 * No slice has more endpoints than the EndpointSlice controller's own default. Pure.
 */
import { nameHash } from '../../model/name-hash.ts'
import type { EndpointSliceBody, PublishedEndpoint } from '../../model/records.ts'

export interface NamedSlice {
  readonly name: string
  readonly body: EndpointSliceBody
}

export const MAX_ENDPOINTS_PUBLISHED = 100

/**
 * Takes all slices of one service, sorted by name, endpoints sorted within each. A body that stays as it is stays the
 * same object.
 */
export function packSlices(slices: readonly NamedSlice[]): NamedSlice[] {
  const groups = new Map<string, NamedSlice[]>()
  for (const slice of slices) {
    const key = JSON.stringify([slice.body.addressType, slice.body.ports])
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [slice])
    else group.push(slice)
  }
  const packed = [...groups.values()].flatMap(packGroup)
  // The placeholder of a service that had no pods may outlive its purpose for a moment.
  const served = new Set(packed.filter(({ body }) => body.endpoints.length > 0).map(({ body }) => body.addressType))
  return packed.filter(({ body }) => body.endpoints.length > 0 || !served.has(body.addressType))
}

function packGroup(group: readonly NamedSlice[]): NamedSlice[] {
  const [first] = group
  if (first === undefined) return []
  if (group.length > 1) {
    const endpoints = unique(group.flatMap(({ body }) => body.endpoints))
    if (endpoints.length <= MAX_ENDPOINTS_PUBLISHED) return [{ ...first, body: { ...first.body, endpoints } }]
  }
  return group.flatMap(chunks)
}

function chunks({ name, body }: NamedSlice): NamedSlice[] {
  if (body.endpoints.length <= MAX_ENDPOINTS_PUBLISHED) return [{ name, body }]
  const parts: NamedSlice[] = []
  for (let i = 0; i < body.endpoints.length; i += MAX_ENDPOINTS_PUBLISHED) {
    const endpoints = body.endpoints.slice(i, i + MAX_ENDPOINTS_PUBLISHED)
    const part = i === 0 ? name : `${body.service}-${nameHash(name, String(i / MAX_ENDPOINTS_PUBLISHED))}`
    parts.push({ name: part, body: { ...body, endpoints } })
  }
  return parts
}

/** While slices are rearranged an endpoint may be in two of them: the one that says it is ready counts. */
function unique(endpoints: readonly PublishedEndpoint[]): PublishedEndpoint[] {
  const found = new Map<string, PublishedEndpoint>()
  for (const endpoint of endpoints) {
    const key = endpoint.addresses.join()
    const known = found.get(key)
    if (known === undefined || (known.conditions?.ready === false && endpoint.conditions?.ready !== false)) {
      found.set(key, endpoint)
    }
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map(([, endpoint]) => endpoint)
}
