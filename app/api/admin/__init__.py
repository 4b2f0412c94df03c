"""The routes of operators below `/admin/v1`: accounts, keys, budgets, quotas, policy, audit. They show no request or answer."""

from fastapi import APIRouter

from app.api.admin import accounts, audit, budgets, keys, policy

router = APIRouter(prefix="/admin/v1")
for module in (accounts, keys, budgets, policy, audit):
    router.include_router(module.router)
