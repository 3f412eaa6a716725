/** XFRM policies of forwarded packets: they drop packets independently of nftables. */
export {
  BLOCK_SECONDS,
  type EarlierPolicy,
  type ForwardPolicies,
  type ForwardPolicy,
  type ListedPolicy,
  type PolicyListing,
  checkPolicy,
  formatPolicy,
  formatPolicyDeletion,
  formatPolicyUpdate,
  policyFamily,
} from './forward-policies.ts'
export { XfrmPolicies } from './xfrm-policies.ts'
