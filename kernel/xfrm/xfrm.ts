/** XFRM policies of forwarded packets: they drop packets independently of nftables. */
export {
  BLOCK_SECONDS,
  type ForwardPolicies,
  type ForwardPolicy,
  type ListedPolicy,
  checkPolicy,
  formatPolicy,
  formatPolicyDeletion,
  formatPolicyUpdate,
  policyFamily,
} from './forward-policies.ts'
export { XfrmPolicies } from './xfrm-policies.ts'
