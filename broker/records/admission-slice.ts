/** Validates an EndpointSlice: other clusters send packets to its addresses and put them into DNS answers. Pure. */
import { type EndpointSliceBody, type PublishedEndpoint, excessNameLength } from '../../model/model.ts'
import {
  MAX_SLICE_ADDRESSES,
  SLICE_ADDRESSES,
  addressIn,
  quote,
  sliceForm,
  textProblem,
} from '../../model/grammar/grammar.ts'
import { type Prefix, containsAddress, formatPrefix } from '../../model/addresses/addresses.ts'
import { type Refusal, checkForm, checkText, describeUnusable, refusal } from './admission-checks.ts'

export interface SliceContext {
  readonly cluster: string
  readonly namespace: string
  readonly podCIDRs: readonly Prefix[]
}

export function admitSlice(body: EndpointSliceBody, context: SliceContext): Refusal | undefined {
  const malformed = checkSize(body) ?? checkForm(sliceForm(body), body, '', SLICE_ADDRESSES)
  if (malformed !== undefined) return malformed
  for (const [i, endpoint] of body.endpoints.entries()) {
    const refused = admitEndpointOfSlice(`endpoints[${i}]`, endpoint, body, context)
    if (refused !== undefined) return refused
  }
  return undefined
}

/** Also called before any other work on the slice. */
export function checkSize({ endpoints }: EndpointSliceBody): Refusal | undefined {
  const addresses = endpoints.reduce((sum, one) => sum + one.addresses.length, 0)
  if (addresses <= MAX_SLICE_ADDRESSES) return undefined
  return refusal(
    'endpoints',
    `${addresses} addresses: expected at most ${MAX_SLICE_ADDRESSES} in one slice`,
    'RecordTooLarge',
  )
}

function admitEndpointOfSlice(
  field: string,
  endpoint: PublishedEndpoint,
  body: EndpointSliceBody,
  context: SliceContext,
): Refusal | undefined {
  for (const [i, text] of endpoint.addresses.entries()) {
    const refused = admitAddress(`${field}.addresses[${i}]`, text, body, context.podCIDRs)
    if (refused !== undefined) return refused
  }
  return admitHostname(`${field}.hostname`, endpoint.hostname, body, context)
}

function admitAddress(
  field: string,
  text: string,
  body: EndpointSliceBody,
  podCIDRs: readonly Prefix[],
): Refusal | undefined {
  const address = addressIn(text, body.addressType)
  if (address === undefined) {
    const form = sliceForm(body).fields.endpoints.item.fields.addresses.item
    return checkText(field, textProblem(form, text))
  }
  const unusable = describeUnusable(address)
  if (unusable === undefined && podCIDRs.some((prefix) => containsAddress(prefix, address))) return undefined
  const own = podCIDRs.map(formatPrefix).join(', ')
  const problem =
    unusable === undefined
      ? `outside the cluster's pod CIDRs: expected one inside ${own}`
      : `${unusable}: expected one inside the cluster's pod CIDRs ${own}`
  return refusal(field, `${quote(text)} is ${problem}`, 'AddressOutsidePods')
}

/** A hostname becomes part of a DNS name of its own, which must not be too long. */
function admitHostname(
  field: string,
  hostname: string | undefined,
  body: EndpointSliceBody,
  context: SliceContext,
): Refusal | undefined {
  if (hostname === undefined || hostname === '') return undefined
  const { cluster, namespace } = context
  const { service } = body
  const excess = excessNameLength({ hostname, cluster, service, namespace })
  if (excess === 0) return undefined
  const characters = hostname.length + cluster.length + service.length + namespace.length
  return refusal(
    field,
    `${quote(hostname)}: the name ${quote(`${hostname}.${cluster}.${service}.…`)} needs ${characters} characters ` +
      `in hostname, cluster, service and namespace: expected at most ${characters - excess} together`,
    'HostnameTooLong',
  )
}
